// The program `hedgerow`: everything is in the shared library, so that the Python package's entry
// point runs the same code.
extern "C" int hedgerow_main(int argc, char** argv);

int main(int argc, char** argv) { return hedgerow_main(argc, argv); }

# What scikit-build-core packs: the library inside the package folder. torch is loaded before it, so
# that no run path is needed; torch_version.txt lets the package refuse another torch by name.
set_target_properties(hedgerow PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib" INSTALL_RPATH_USE_LINK_PATH OFF)
install(TARGETS hedgerow LIBRARY DESTINATION hedgerow COMPONENT python NAMELINK_SKIP)
install(FILES ${PROJECT_BINARY_DIR}/lib/torch_version.txt DESTINATION hedgerow COMPONENT python)

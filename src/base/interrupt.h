// Ctrl-C: long loops ask between steps and unwind with Interrupted, so that destructors run,
// temporary files go and checkpoints stay.
#pragma once

namespace hedgerow {

// Notes SIGINT and SIGTERM instead of dying; a second signal ends the process at once.
void install_interrupt_handler();

bool interrupted();

// Throws Interrupted if a signal came.
void check_interrupt();

}  // namespace hedgerow

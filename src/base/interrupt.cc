#include "base/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "hedgerow/error.h"

namespace hedgerow {
namespace {
volatile std::sig_atomic_t signals = 0;

extern "C" void note_signal(int) {
  if (signals++ > 0) _exit(130);
}
}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return signals > 0; }

void check_interrupt() {
  if (interrupted()) throw Interrupted("interrupted");
}

}  // namespace hedgerow

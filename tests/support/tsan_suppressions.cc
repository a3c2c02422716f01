// Linked into every executable of the thread sanitizer's build, so that children have it too.
//
// libzmq comes from the distribution and is not instrumented: the sanitizer does not see that its
// lock-free queues order what passes through them. Everything of ours on both sides of a socket
// stays checked.
extern "C" const char* __tsan_default_suppressions();

// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so.5\nrace:libzmq.so.5\n";
}

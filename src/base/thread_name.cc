#include "base/thread_name.h"

#include <string>

#include <pthread.h>

namespace kvr {

void SetThreadName(std::string_view name) {
  pthread_setname_np(pthread_self(), std::string(name.substr(0, 15)).c_str());
}

}  // namespace kvr

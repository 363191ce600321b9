// Lets other threads of Python run for as long as it lives.
//
// A daemon thread that comes back while the interpreter ends is made to end by unwinding its stack,
// up to Python 3.13. The functions between here and Python cannot be unwound, so that would end the
// process with an abort. It sleeps instead until the process is gone, as in newer versions.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace lancelet {

class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  ~Released() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace lancelet

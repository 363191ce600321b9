// Releases the global interpreter lock for its lifetime.
//
// Up to Python 3.13, a daemon thread that reacquires the lock during finalization is terminated by
// stack unwinding. The frames in between cannot be unwound, so the process would abort. The thread
// sleeps until the process exits instead, as newer Python versions do.
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

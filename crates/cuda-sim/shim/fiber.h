// A thread of the device as a fiber of the host: a stack, and a switch between them that costs some nanoseconds. ucontext
// would do, but makes two system calls at each switch, and a reduction makes fifty switches a thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shim {

constexpr size_t STACK_BYTES = 64 << 10;

#if defined(__x86_64__)

// Saves the callee's registers on this stack and goes on where `to` left off.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from*/, void* /*to*/) {
    __asm__ volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

class Fiber {
  public:
    // Begins `entry` at the next `resume`; it must not return.
    void start(void (*entry)()) {
        if (!stack_) stack_.reset(new char[STACK_BYTES]);
        auto top = reinterpret_cast<uintptr_t>(stack_.get() + STACK_BYTES) & ~uintptr_t{15};
        auto* words = reinterpret_cast<uintptr_t*>(top);
        *--words = 0;                                    // keeps the stack aligned as after a call
        *--words = reinterpret_cast<uintptr_t>(entry);   // where `ret` goes
        for (int i = 0; i < 6; ++i) *--words = 0;
        at_ = words;
    }
    void resume() { switch_stack(&host_, at_); }
    void suspend() { switch_stack(&at_, host_); }

  private:
    std::unique_ptr<char[]> stack_;
    void* at_ = nullptr;
    void* host_ = nullptr;
};

#else

class Fiber {
  public:
    void start(void (*entry)()) {
        if (!stack_) stack_.reset(new char[STACK_BYTES]);
        getcontext(&at_);
        at_.uc_stack.ss_sp = stack_.get();
        at_.uc_stack.ss_size = STACK_BYTES;
        at_.uc_link = nullptr;
        makecontext(&at_, entry, 0);
    }
    void resume() { swapcontext(&host_, &at_); }
    void suspend() { swapcontext(&at_, &host_); }

  private:
    std::unique_ptr<char[]> stack_;
    ucontext_t at_, host_;
};

#endif

}  // namespace shim

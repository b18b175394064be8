/* Threads and programs that a bound thread of the pool starts may run on all cores of the process.
 *
 * Both inherit the cores of the thread that starts them (sched_setaffinity(2)), and a daemon, or the threads of a native
 * library, would keep the one core for good. So the server preloads this library, which stands before the functions
 * of the C library that start something: each has the native extension free the calling thread, and goes on with the
 * C library's. The pool binds the thread again when it next wants the GVL. Where this library is not loaded, no thread is
 * ever bound. A program that is started by a system call of its own, past the C library, is not covered.
 *
 * It needs nothing but the C library, because programs that are started before the server restores LD_PRELOAD, by Bundler
 * for example, load it too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/types.h>

/* Set by the native extension: frees the calling thread. */
void (*chaton_before_start)(void);

/* Returns the C library's function. */
static void *before_start(const char *name) {
  if (chaton_before_start)
    chaton_before_start();
  return dlsym(RTLD_NEXT, name);
}

#define STANDS_BEFORE(result, name, parameters, arguments) \
  result name parameters { \
    result (*found) parameters = before_start(#name); \
    return found arguments; \
  }

STANDS_BEFORE(int, pthread_create,
              (pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument),
              (thread, attributes, start, argument))
STANDS_BEFORE(pid_t, fork, (void), ())
STANDS_BEFORE(int, system, (const char *command), (command))
STANDS_BEFORE(FILE *, popen, (const char *command, const char *mode), (command, mode))
STANDS_BEFORE(int, posix_spawn,
              (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
               const posix_spawnattr_t *attributes, char *const *argv, char *const *environment),
              (pid, path, actions, attributes, argv, environment))
STANDS_BEFORE(int, posix_spawnp,
              (pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
               const posix_spawnattr_t *attributes, char *const *argv, char *const *environment),
              (pid, file, actions, attributes, argv, environment))

/* The child of vfork uses the stack of its parent, so no frame may be left between the caller and the C library's: this one
 * jumps to it. */
static __attribute__((used)) void *real_vfork;
static __attribute__((used)) void before_vfork(void) { real_vfork = before_start("vfork"); }

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        "  endbr64\n"
        "  subq $8, %rsp\n"
        "  call before_vfork\n"
        "  addq $8, %rsp\n"
        "  jmp *real_vfork(%rip)\n"
        ".size vfork, .-vfork\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n"
        "  hint #34\n"
        "  stp x29, x30, [sp, #-16]!\n"
        "  bl before_vfork\n"
        "  ldp x29, x30, [sp], #16\n"
        "  adrp x16, real_vfork\n"
        "  ldr x16, [x16, #:lo12:real_vfork]\n"
        "  br x16\n"
        ".size vfork, .-vfork\n");
#else
#error "vfork is not written for this processor"
#endif

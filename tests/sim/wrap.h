/* SPDX-License-Identifier: MIT
 *
 * wrap.h - what stands in for the system in the simulation, and what the
 * linker calls the real thing.
 */
#ifndef DIBS_SIM_WRAP_H
#define DIBS_SIM_WRAP_H

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <uv.h>

/* Simulated time begins here, in us since 1970. */
#define SIM_EPOCH_US INT64_C(1700000000000000)
#define SIM_FD_FIRST 100000 /* smaller ones are real */

/* A socket can be read or written, or not any more: wakes who looks at it. */
struct sim_sock;
void sim_poll_changed(struct sim_sock *s);
/* What can be done with it now: UV_READABLE, UV_WRITABLE. */
int sim_sock_events(const struct sim_sock *s);
struct sim_sock *sim_sock_of(int fd);
void sim_sock_polled(struct sim_sock *s, const void *by);

/* Memory: all of the program's is in one place, at the same addresses in each
 * run. What a process asks for can be refused. */
void sim_memory_begin(void);
void sim_memory_refuse(int64_t one_in); /* 0 = never */
bool sim_memory_short(void);            /* refuse this one? */
size_t sim_memory_used(void);           /* bytes that are not given back */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __real_close(int fd);
int __real_fcntl(int fd, int what, ...);
ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __real_write(int fd, const void *p, size_t n);
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);

int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a);
int __wrap_pthread_cond_destroy(pthread_cond_t *c);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *t);
int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  clockid_t clock, const struct timespec *t);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_sem_init(sem_t *s, int shared, unsigned value);
int __wrap_sem_destroy(sem_t *s);
int __wrap_sem_wait(sem_t *s);
int __wrap_sem_trywait(sem_t *s);
int __wrap_sem_timedwait(sem_t *s, const struct timespec *t);
int __wrap_sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *t);
int __wrap_sem_post(sem_t *s);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
                          void *(*run)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **value);
int __wrap_pthread_detach(pthread_t t);
pthread_t __wrap_pthread_self(void);
int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_setcancelstate(int state, int *old);
int __wrap_sched_yield(void);
long __wrap_syscall(long number, ...);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_uv_random(uv_loop_t *loop, uv_random_t *req, void *buf, size_t len,
                     unsigned flags, uv_random_cb cb);

int __wrap_uv_loop_init(uv_loop_t *loop);
int __wrap_uv_loop_close(uv_loop_t *loop);
int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode);
void __wrap_uv_close(uv_handle_t *h, uv_close_cb cb);
int __wrap_uv_async_init(uv_loop_t *loop, uv_async_t *h, uv_async_cb cb);
int __wrap_uv_async_send(uv_async_t *h);
int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *h);
int __wrap_uv_timer_start(uv_timer_t *h, uv_timer_cb cb, uint64_t in,
                          uint64_t every);
int __wrap_uv_timer_stop(uv_timer_t *h);
int __wrap_uv_prepare_init(uv_loop_t *loop, uv_prepare_t *h);
int __wrap_uv_prepare_start(uv_prepare_t *h, uv_prepare_cb cb);
int __wrap_uv_check_init(uv_loop_t *loop, uv_check_t *h);
int __wrap_uv_check_start(uv_check_t *h, uv_check_cb cb);
int __wrap_uv_poll_init(uv_loop_t *loop, uv_poll_t *h, int fd);
int __wrap_uv_poll_start(uv_poll_t *h, int events, uv_poll_cb cb);
int __wrap_uv_poll_stop(uv_poll_t *h);

int __wrap_socket(int family, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_setsockopt(int fd, int level, int name, const void *value,
                      socklen_t len);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...);
int __wrap_shutdown(int fd, int how);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_eventfd(unsigned first, int flags);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
int __wrap_close(int fd);
int __wrap_getaddrinfo(const char *host, const char *port,
                       const struct addrinfo *want, struct addrinfo **out);
void __wrap_freeaddrinfo(struct addrinfo *a);
int __wrap_gethostname(char *name, size_t size);
pid_t __wrap_getpid(void);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

#endif

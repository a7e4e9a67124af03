/* SPDX-License-Identifier: MIT
 *
 * kit.cpp - runs the tests of a program, one after the other, on one server.
 *
 *   program                      all tests
 *   program ENDING SOCKET CODE   a body that should end by std::terminate; the
 *                                exit code is 42 if it does, as it should
 */
#include "kit.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace kit
{

ts_server *srv;

namespace
{

constexpr int ended_well = 42;

struct test {
    const char *name;
    void (*fn)();
    bool ending;
};

std::vector<test> &tests()
{
    static std::vector<test> all;
    return all;
}

std::string ending_url;
int ending_code;

[[noreturn]] void on_terminate()
{
    int status = 1;

    try {
        if (std::current_exception())
            std::rethrow_exception(std::current_exception());
    } catch (const dibs::error &e) {
        std::fprintf(stderr, "ended by: %s\n", e.what());
        if (e.code().value() == ending_code)
            status = ended_well;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "ended by something else: %s\n", e.what());
    }
    _exit(status);
}

int run_ending(char **argv)
{
    ending_url = argv[2];
    ending_code = std::atoi(argv[3]);
    std::set_terminate(on_terminate);
    for (const test &t : tests())
        if (t.ending && std::strcmp(t.name, argv[1]) == 0)
            t.fn();
    return 0; /* it did not end the program */
}

/* What the test left on the server. */
std::string leftovers(long long strange)
{
    if (ts_nkeys(srv) != 0)
        return "keys are left";
    if (!ts_wait_clients(srv, strange))
        return "connections are left";
    if (ts_nchannels(srv) != 0)
        return "channels are left";
    return "";
}

bool passes(const test &t)
{
    std::string why;

    ts_ok(srv, "FLUSHALL");
    const long long strange = ts_client_count(srv);
    try {
        t.fn();
        why = leftovers(strange);
    } catch (const std::exception &e) {
        why = e.what();
    }
    std::printf("%-40s %s\n", t.name, why.empty() ? "ok" : why.c_str());
    std::fflush(stdout);
    return why.empty();
}

} // namespace

std::string url()
{
    return srv ? ts_server_url(srv) : ending_url;
}

bool add(const char *name, void (*fn)(), bool ending)
{
    tests().push_back(test{name, fn, ending});
    return true;
}

bool ends_by_terminate(const char *ending, dibs_err want)
{
    const std::string where = url(), code = std::to_string(want);
    char self[4096] = {};
    int status = 0;

    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, ending, where.c_str(), code.c_str(),
              static_cast<char *>(nullptr));
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == ended_well;
}

} // namespace kit

int main(int argc, char **argv)
{
    int failed = 0, run = 0;

    if (argc == 4)
        return kit::run_ending(argv);
    kit::srv = ts_server_start(nullptr);
    for (const auto &t : kit::tests()) {
        if (t.ending)
            continue;
        run++;
        failed += kit::passes(t) ? 0 : 1;
    }
    ts_server_stop(kit::srv);
    std::printf("%d tests, %d failed\n", run, failed);
    return failed == 0 && run > 0 ? 0 : 1;
}

/* SPDX-License-Identifier: MIT
 *
 * fenced.cpp - writes that cannot come too late:  fenced [URL]
 *
 * A holder that was stopped for longer than its lease does not know that it is
 * not the holder any more, and may be about to write. No lock can prevent that;
 * what is written to can. Each grant comes with a token that only grows. The
 * store keeps the highest it has seen, and refuses lower ones.
 */
#include <dibs/dibs.hpp>

#include <iostream>

#ifdef DIBS_HAS_FENCED

/* What the lock protects: a database, a file server, a device. */
struct store {
    std::int64_t highest = 0;
    std::string value;

    bool write(std::int64_t token, const std::string &text)
    {
        if (token < highest)
            return false;
        highest = token;
        value = text;
        return true;
    }
};

int main(int argc, char **argv)
try {
    dibs::client c(argc > 1 ? argv[1] : "redis://127.0.0.1:6379");
    dibs::fenced_mutex m(c, "dibs:example:fenced");
    store s;

    /* The first holder gets its token, and is stopped before it writes. */
    dibs::hold first(m);
    const std::int64_t late = first.token();
    m.force_release(); /* as the end of its lease would */

    dibs::hold second = m.with_owner(c.new_owner()).acquire();
    bool fine = s.write(second.token(), "second");
    fine = fine && !s.write(late, "first, too late");
    std::cout << "fenced: the store has \"" << s.value << "\"\n";

    std::error_code ec;
    first.release(ec); /* says it, too: DIBS_ERR_LOST */
    return fine && ec == DIBS_ERR_LOST ? 0 : 1;
} catch (const dibs::error &e) {
    std::cerr << "fenced: " << e.what() << "\n";
    return 1;
}

#else

int main()
{
    std::cout << "fenced: this version of dibs has no fenced locks\n";
}

#endif

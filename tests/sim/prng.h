/* SPDX-License-Identifier: MIT
 *
 * prng.h - numbers that look random and are not: the same seed, the same
 * numbers. Every part of the world draws from a stream of its own, so that a
 * client less, or a fault less, leaves the choices of the others as they were.
 */
#ifndef DIBS_TESTS_SIM_PRNG_H
#define DIBS_TESTS_SIM_PRNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_chance {
    uint64_t state;
};

static inline uint64_t sim_draw(struct sim_chance *c)
{
    uint64_t z = (c->state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A stream of its own: that of seed and number. */
static inline struct sim_chance sim_stream(uint64_t seed, uint64_t number)
{
    struct sim_chance c = {seed * 0xd1342543de82ef95u + number};

    sim_draw(&c);
    c.state ^= sim_draw(&c);
    return c;
}

/* In [low, high]. */
static inline int64_t sim_between(struct sim_chance *c, int64_t low,
                                  int64_t high)
{
    if (high <= low)
        return low;
    return low + (int64_t)(sim_draw(c) % (uint64_t)(high - low + 1));
}

/* Once in n times. */
static inline bool sim_once_in(struct sim_chance *c, int64_t n)
{
    return n > 0 && sim_draw(c) % (uint64_t)n == 0;
}

/* Short ones often, long ones seldom: up to most, most of them far below. */
static inline int64_t sim_skewed(struct sim_chance *c, int64_t most)
{
    int64_t up_to = most >> sim_between(c, 0, 8);

    return sim_between(c, 0, up_to);
}

#endif

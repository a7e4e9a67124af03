/* SPDX-License-Identifier: MIT
 *
 * script.c - scripts: EVAL, EVALSHA and SCRIPT, in Lua 5.1.
 *
 * One Lua state a server, made when first needed and thrown away by SCRIPT
 * FLUSH. Scripts see the globals through an empty table that refuses to be
 * written to; a global that is not there is an error. Errors carry the line
 * and the digest, as those of Redis 7.0 do. Chance is left out of the math
 * library: a script has none, so that runs are alike.
 *
 * What a script may not do is found command by command: it is no transaction,
 * and what it wrote before stays. No memory is asked about only until its
 * first write. Replicas get the effects, all of them at once.
 */
#include "sim/impl.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 200000000 /* of Lua's machine */

static const char prelude[] =
    "local dbg = debug\n"
    "debug, dofile, loadfile, newproxy, print, module, require, package =\n"
    "    nil, nil, nil, nil, nil, nil, nil, nil\n"
    "math.random, math.randomseed = nil, nil\n"
    "return function(err)\n"
    "  local i = dbg.getinfo(2, 'nSl')\n"
    "  if i and i.what == 'C' then i = dbg.getinfo(3, 'nSl') end\n"
    "  if type(err) ~= 'table' then err = {err = 'ERR ' .. tostring(err)} end\n"
    "  if i then err.source, err.line = i.source, i.currentline end\n"
    "  return err\n"
    "end\n";

static struct sr_server *server_of(lua_State *lua)
{
    lua_getfield(lua, LUA_REGISTRYINDEX, "server");
    struct sr_server *s = lua_touserdata(lua, -1);
    lua_pop(lua, 1);
    return s;
}

/* ---- redis.call -------------------------------------------------------- */

/* {err = text}; a text without a code gets one. */
static void push_error(lua_State *lua, const char *text, bool has_code)
{
    lua_newtable(lua);
    lua_pushfstring(lua, has_code ? "%s" : "ERR %s", text);
    lua_setfield(lua, -2, "err");
}

/* Why a script may not run this; NULL: it may. */
static const char *forbidden(struct sr_call *k, bool *has_code)
{
    struct sr_server *s = k->s;
    const struct sr_command *cmd = k->cmd;
    const char *why = NULL;

    *has_code = false;
    if (!cmd || ((cmd->flags & SR_CONTAINER) && k->argc > 1))
        return "Unknown Redis command called from script";
    if (cmd->arity > 0 ? k->argc != cmd->arity : k->argc < -cmd->arity)
        return "Wrong number of args calling Redis command from script";
    if (cmd->flags & SR_NOSCRIPT)
        return "This Redis command is not allowed from script";
    switch (k->c->user ? sr__user_may(k->c->user, cmd, k->argc, k->argv)
                       : SR_MAY) {
    case SR_MAY:
        break;
    case SR_NOT_COMMAND:
        return "The user executing the script can't run this command or "
               "subcommand";
    case SR_NOT_KEY:
        return "The user executing the script can't access at least one of "
               "the keys mentioned in the command arguments";
    case SR_NOT_CHANNEL:
        return "The user executing the script can't publish to the channel "
               "mentioned in the command";
    }
    *has_code = true;
    if ((cmd->flags & SR_WRITE) && (why = sr__write_refused(s)))
        return why;
    if ((cmd->flags & SR_DENYOOM) && s->script_full && !s->script_wrote)
        return "OOM command not allowed when used memory > 'maxmemory'.";
    return NULL;
}

struct locality {
    struct sr_server *s;
    bool elsewhere; /* one of the keys */
};

static void check_key(struct sr_str key, void *arg)
{
    struct locality *l = arg;

    l->elsewhere |= !sr__cluster_local(l->s, key);
}

static bool keys_are_here(struct sr_call *k)
{
    struct locality l = {.s = k->s};

    sr__keys_each(k->cmd, k->argc, k->argv, check_key, &l);
    return !l.elsewhere;
}

static void run_call(lua_State *lua, struct sr_call *k)
{
    struct sr_buf out = {0};
    bool has_code;
    const char *why = forbidden(k, &has_code);

    if (!why && !keys_are_here(k))
        why = "ERR Script attempted to access a non local key in a cluster "
              "node";
    if (why) {
        push_error(lua, why, has_code);
        return;
    }
    if (k->cmd->flags & SR_WRITE)
        k->s->script_wrote = true;
    k->out = &out;
    sr__run(k);
    sr__lua_push(lua, out.p, out.n);
    sr__buf_free(&out);
}

/* Arguments of a call, owned; false: one is neither text nor number. */
static bool take_args(lua_State *lua, struct sr_str *argv, int argc)
{
    for (int i = 0; i < argc; i++) {
        char text[64];
        if (lua_type(lua, i + 1) == LUA_TNUMBER) {
            int n = snprintf(text, sizeof text, "%.17g",
                             (double)lua_tonumber(lua, i + 1));
            argv[i] = sr__bytes(text, (size_t)n);
        } else if (lua_type(lua, i + 1) == LUA_TSTRING) {
            size_t n;
            const char *p = lua_tolstring(lua, i + 1, &n);
            argv[i] = sr__bytes(p, n);
        } else {
            return false;
        }
    }
    return true;
}

/* Leaves the reply on the stack; true: it is an error. Frees all it takes, as
 * lua_error does not return. */
static bool call_command(lua_State *lua)
{
    struct sr_server *s = server_of(lua);
    int argc = lua_gettop(lua);

    if (argc == 0) {
        push_error(lua,
                   "Please specify at least one argument for this redis lib "
                   "call",
                   false);
        return true;
    }
    struct sr_str *argv = sr__alloc((size_t)argc * sizeof *argv);
    if (take_args(lua, argv, argc)) {
        struct sr_call k = {.s = s, .c = s->script->c};
        k.argc = argc;
        k.argv = argv;
        k.cmd = sr__command_find(s, argv[0], argc > 1 ? &argv[1] : NULL);
        run_call(lua, &k);
    } else {
        push_error(lua,
                   "Lua redis lib command arguments must be strings or "
                   "integers",
                   false);
    }
    for (int i = 0; i < argc; i++)
        sr__str_free(&argv[i]);
    free(argv);
    if (!lua_istable(lua, -1))
        return false;
    lua_getfield(lua, -1, "err");
    bool failed = !lua_isnil(lua, -1);
    lua_pop(lua, 1);
    return failed;
}

static int redis_call(lua_State *lua)
{
    return call_command(lua) ? lua_error(lua) : 1;
}

static int redis_pcall(lua_State *lua)
{
    call_command(lua);
    return 1;
}

static int wrong_arguments(lua_State *lua)
{
    push_error(lua, "wrong number or type of arguments", false);
    return 1;
}

static int redis_error_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, -1) != LUA_TSTRING)
        return wrong_arguments(lua);
    const char *text = lua_tostring(lua, 1);
    if (text[0] == '-')
        text++;
    push_error(lua, text, strchr(text, ' ') != NULL);
    return 1;
}

static int redis_status_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, -1) != LUA_TSTRING)
        return wrong_arguments(lua);
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "ok");
    return 1;
}

static int redis_sha1hex(lua_State *lua)
{
    char hex[41];
    size_t n;

    if (lua_gettop(lua) != 1) {
        push_error(lua, "wrong number of arguments", false);
        return lua_error(lua);
    }
    const char *p = lua_tolstring(lua, 1, &n);
    sr__sha1_hex((struct sr_str){(char *)(uintptr_t)p, p ? n : 0}, hex);
    lua_pushstring(lua, hex);
    return 1;
}

static int redis_log(lua_State *lua)
{
    (void)lua;
    return 0;
}

static int redis_replicate(lua_State *lua)
{
    lua_pushboolean(lua, 1);
    return 1;
}

/* A script without an end would be the end of the test. */
static void too_long(lua_State *lua, lua_Debug *at)
{
    (void)at;
    luaL_error(lua, "Script killed by user with SCRIPT KILL.");
}

/* ---- the state --------------------------------------------------------- */

static int no_such_global(lua_State *lua)
{
    return luaL_error(
        lua, "Script attempted to access nonexistent global variable '%s'",
        lua_tostring(lua, 2));
}

static int no_writing(lua_State *lua)
{
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static void open_libs(lua_State *lua)
{
    static const luaL_Reg libs[] = {{"", luaopen_base},
                                    {LUA_TABLIBNAME, luaopen_table},
                                    {LUA_STRLIBNAME, luaopen_string},
                                    {LUA_MATHLIBNAME, luaopen_math},
                                    {LUA_DBLIBNAME, luaopen_debug}};

    for (size_t i = 0; i < sizeof libs / sizeof libs[0]; i++) {
        lua_pushcfunction(lua, libs[i].func);
        lua_pushstring(lua, libs[i].name);
        lua_call(lua, 1, 0);
    }
}

static void set_redis_table(lua_State *lua)
{
    static const luaL_Reg functions[] = {
        {"call", redis_call},
        {"pcall", redis_pcall},
        {"error_reply", redis_error_reply},
        {"status_reply", redis_status_reply},
        {"sha1hex", redis_sha1hex},
        {"log", redis_log},
        {"replicate_commands", redis_replicate},
        {NULL, NULL}};
    static const char *const levels[] = {"LOG_DEBUG", "LOG_VERBOSE",
                                         "LOG_NOTICE", "LOG_WARNING"};

    lua_newtable(lua);
    luaL_register(lua, NULL, functions);
    for (int i = 0; i < 4; i++) {
        lua_pushinteger(lua, i);
        lua_setfield(lua, -2, levels[i]);
    }
    lua_setglobal(lua, "redis");
}

/* What scripts see: reads go to the real globals, writes are refused. */
static void set_window(lua_State *lua)
{
    lua_newtable(lua); /* of the real globals */
    lua_pushcfunction(lua, no_such_global);
    lua_setfield(lua, -2, "__index");
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    lua_insert(lua, -2);
    lua_setmetatable(lua, -2);
    lua_pop(lua, 1);

    lua_newtable(lua); /* the window */
    lua_newtable(lua);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, no_writing);
    lua_setfield(lua, -2, "__newindex");
    lua_pushboolean(lua, 0);
    lua_setfield(lua, -2, "__metatable");
    lua_setmetatable(lua, -2);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, LUA_REGISTRYINDEX, "window");
    lua_setglobal(lua, "_G");
}

static lua_State *state_of(struct sr_server *s)
{
    lua_State *lua = s->lua;

    if (lua)
        return lua;
    s->lua = lua = luaL_newstate();
    if (!lua)
        abort();
    open_libs(lua);
    lua_pushlightuserdata(lua, s);
    lua_setfield(lua, LUA_REGISTRYINDEX, "server");
    if (luaL_loadbuffer(lua, prelude, sizeof prelude - 1, "@prelude") ||
        lua_pcall(lua, 0, 1, 0))
        abort();
    lua_setfield(lua, LUA_REGISTRYINDEX, "on_error");
    set_redis_table(lua);
    set_window(lua);
    return lua;
}

void sr__scripts_free(struct sr_server *s)
{
    if (s->lua)
        lua_close(s->lua);
    s->lua = NULL;
    sr__dict_free(&s->scripts, NULL);
}

/* ---- scripts ----------------------------------------------------------- */

/* Compiles it, unless that was done before. False: an error was answered. */
static bool load_script(struct sr_call *k, struct sr_str body, char hex[41])
{
    lua_State *lua = state_of(k->s);

    sr__sha1_hex(body, hex);
    if (sr__dict_find(&k->s->scripts, sr__view(hex)))
        return true;
    if (luaL_loadbuffer(lua, body.p, body.n, "@user_script")) {
        sr__reply_error(k, "ERR Error compiling script (new function): %s",
                        lua_tostring(lua, -1));
        lua_pop(lua, 1);
        return false;
    }
    lua_getfield(lua, LUA_REGISTRYINDEX, "window");
    lua_setfenv(lua, -2);
    lua_setfield(lua, LUA_REGISTRYINDEX, hex);
    sr__dict_add(&k->s->scripts, sr__view(hex), NULL);
    return true;
}

static void set_words(lua_State *lua, const char *name,
                      const struct sr_str *argv, int n)
{
    lua_createtable(lua, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushlstring(lua, argv[i].p, argv[i].n);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_setglobal(lua, name);
}

/* The table on top is an error with its place. */
static void reply_failure(lua_State *lua, struct sr_call *k, const char *hex)
{
    struct sr_buf where = {0};

    lua_getfield(lua, -1, "err");
    lua_getfield(lua, -2, "source");
    lua_getfield(lua, -3, "line");
    if (lua_isstring(lua, -1) && lua_isstring(lua, -2))
        sr__buf_fmt(&where, " script: %s, on %s:%s.", hex,
                    lua_tostring(lua, -2), lua_tostring(lua, -1));
    sr__reply_error(k, "%s%s",
                    lua_isstring(lua, -3) ? lua_tostring(lua, -3)
                                          : "ERR unknown error",
                    where.p ? where.p : "");
    sr__buf_free(&where);
    lua_pop(lua, 4);
}

static void run_script(struct sr_call *k, const char *hex, int nkeys)
{
    struct sr_server *s = k->s;
    lua_State *lua = state_of(s);

    set_words(lua, "KEYS", k->argv + 3, nkeys);
    set_words(lua, "ARGV", k->argv + 3 + nkeys, k->argc - 3 - nkeys);
    s->script = k;
    s->script_wrote = false;
    s->script_full = sr__full(s);
    lua_getfield(lua, LUA_REGISTRYINDEX, "on_error");
    lua_getfield(lua, LUA_REGISTRYINDEX, hex);
    lua_sethook(lua, too_long, LUA_MASKCOUNT, MAX_STEPS);
    int failed = lua_pcall(lua, 0, 1, -2);
    s->script = NULL;
    if (!failed) {
        sr__lua_reply(lua, k);
    } else if (lua_istable(lua, -1)) {
        reply_failure(lua, k, hex);
    } else {
        sr__reply_error(k, "ERR %s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1); /* on_error */
    lua_gc(lua, LUA_GCSTEP, 1);
}

static bool count_keys(struct sr_call *k, int64_t *n)
{
    if (!sr__arg_int(k, 2, n))
        return false;
    if (*n > k->argc - 3)
        sr__reply_error(k, "ERR Number of keys can't be greater than number of "
                           "args");
    else if (*n < 0)
        sr__reply_error(k, "ERR Number of keys can't be negative");
    else
        return true;
    return false;
}

static void cmd_eval(struct sr_call *k)
{
    char hex[41];
    int64_t n;

    if (count_keys(k, &n) && load_script(k, k->argv[1], hex))
        run_script(k, hex, (int)n);
}

static void small_letters(struct sr_str s, char hex[41])
{
    size_t n = s.n < 40 ? s.n : 40;

    for (size_t i = 0; i < n; i++)
        hex[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] - 'A' + 'a')
                                                : s.p[i];
    hex[n] = '\0';
}

static void cmd_evalsha(struct sr_call *k)
{
    char hex[41];
    int64_t n;

    small_letters(k->argv[1], hex);
    if (k->argv[1].n != 40) {
        sr__reply_error(k, "NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    if (!count_keys(k, &n))
        return;
    if (!sr__dict_find(&k->s->scripts, sr__view(hex)))
        sr__reply_error(k, "NOSCRIPT No matching script. Please use EVAL.");
    else
        run_script(k, hex, (int)n);
}

static void cmd_script_load(struct sr_call *k)
{
    char hex[41];

    if (load_script(k, k->argv[2], hex))
        sr__reply_text(k, hex);
}

static void cmd_script_exists(struct sr_call *k)
{
    sr__reply_array(k, (size_t)k->argc - 2);
    for (int i = 2; i < k->argc; i++) {
        char hex[41];
        small_letters(k->argv[i], hex);
        sr__reply_int(k, k->argv[i].n == 40 &&
                             sr__dict_find(&k->s->scripts, sr__view(hex)));
    }
}

static void cmd_script_flush(struct sr_call *k)
{
    if (k->argc > 3 || (k->argc == 3 && !sr__is(k->argv[2], "sync") &&
                        !sr__is(k->argv[2], "async"))) {
        sr__reply_error(k, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    sr__scripts_free(k->s);
    sr__reply_ok(k);
}

static void cmd_script_kill(struct sr_call *k)
{
    if (k->s->fault[SR_BUSY]) {
        k->s->fault[SR_BUSY] = false;
        sr__reply_ok(k);
    } else {
        sr__reply_error(k, "NOTBUSY No scripts in execution right now.");
    }
}

#define RUNS (SR_EVAL | SR_NOSCRIPT | SR_REPLICATES | SR_IN_STALE)

const struct sr_command sr__script_commands[] = {
    {"eval", cmd_eval, -3, RUNS, 0, 0, 0},
    {"evalsha", cmd_evalsha, -3, RUNS, 0, 0, 0},
    {"script", NULL, -2, SR_NOSCRIPT | SR_CONTAINER, 0, 0, 0},
    {"script|load", cmd_script_load, 3, SR_NOSCRIPT | SR_IN_STALE, 0, 0, 0},
    {"script|exists", cmd_script_exists, -3, SR_NOSCRIPT, 0, 0, 0},
    {"script|flush", cmd_script_flush, -2, SR_NOSCRIPT, 0, 0, 0},
    {"script|kill", cmd_script_kill, 2, SR_NOSCRIPT | SR_SLOW_OK, 0, 0, 0},
    {0}};

/* SPDX-License-Identifier: MIT
 *
 * lua_resp.c - a reply as a Lua value, and a Lua value as a reply.
 *
 * As Redis has it: a nil is false, an error is {err = text}, a status is {ok =
 * text}. The other way: a number loses what is behind its point, true is 1,
 * false and nil are nil, an array ends at its first nil.
 */
#include "sim/impl.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdlib.h>
#include <string.h>

static void push_field(lua_State *lua, const char *name, const char *p,
                       size_t n)
{
    lua_newtable(lua);
    lua_pushlstring(lua, p, n);
    lua_setfield(lua, -2, name);
}

/* The reply is one of ours, so it is well formed. Gives its length. */
size_t sr__lua_push(struct lua_State *lua, const char *reply, size_t n)
{
    const char *end = memchr(reply, '\r', n);
    const char *text = reply + 1;
    size_t len = (size_t)(end - text), used = len + 3;
    long long number = strtoll(text, NULL, 10);

    luaL_checkstack(lua, 4, "reply too deep");
    switch (reply[0]) {
    case '+':
        push_field(lua, "ok", text, len);
        return used;
    case '-':
        push_field(lua, "err", text, len);
        return used;
    case ':':
        lua_pushnumber(lua, (lua_Number)number);
        return used;
    case '$':
        if (number < 0) {
            lua_pushboolean(lua, 0);
            return used;
        }
        lua_pushlstring(lua, reply + used, (size_t)number);
        return used + (size_t)number + 2;
    default:
        break;
    }
    if (number < 0) {
        lua_pushboolean(lua, 0);
        return used;
    }
    lua_createtable(lua, (int)number, 0);
    for (int i = 1; i <= number; i++) {
        used += sr__lua_push(lua, reply + used, n - used);
        lua_rawseti(lua, -2, i);
    }
    return used;
}

/* The text of this field of the table on top; it stays there. False: none. */
static bool text_field(lua_State *lua, const char *name, struct sr_str *out)
{
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    bool is = lua_type(lua, -1) == LUA_TSTRING;
    if (is) {
        size_t n;
        const char *p = lua_tolstring(lua, -1, &n);
        *out = sr__bytes(p, n);
    }
    lua_pop(lua, 1);
    return is;
}

static void reply_table(lua_State *lua, struct sr_call *k)
{
    struct sr_str text;

    if (text_field(lua, "err", &text)) {
        sr__reply_error(k, "%s", text.p);
        sr__str_free(&text);
        return;
    }
    if (text_field(lua, "ok", &text)) {
        for (size_t i = 0; i < text.n; i++)
            if (text.p[i] == '\r' || text.p[i] == '\n')
                text.p[i] = ' ';
        sr__reply_status(k, text.p);
        sr__str_free(&text);
        return;
    }
    struct sr_buf whole = {0}, *out = k->out;
    size_t n = 0;
    k->out = &whole;
    for (int i = 1;; i++, n++) {
        lua_rawgeti(lua, -1, i);
        if (lua_isnil(lua, -1))
            break;
        sr__lua_reply(lua, k);
    }
    lua_pop(lua, 1);
    k->out = out;
    sr__reply_array(k, n);
    sr__buf_add(k->out, whole.p, whole.n);
    sr__buf_free(&whole);
}

/* What is on top, as a reply; takes it off. */
void sr__lua_reply(struct lua_State *lua, struct sr_call *k)
{
    size_t n;

    if (!lua_checkstack(lua, 4)) {
        sr__reply_error(k, "ERR reached lua stack limit");
        lua_pop(lua, 1);
        return;
    }
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING: {
        const char *p = lua_tolstring(lua, -1, &n);
        sr__out_bulk(k->out, (struct sr_str){(char *)(uintptr_t)p, n});
        break;
    }
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1))
            sr__reply_int(k, 1);
        else
            sr__reply_nil(k);
        break;
    case LUA_TNUMBER:
        sr__reply_int(k, (int64_t)lua_tonumber(lua, -1));
        break;
    case LUA_TTABLE:
        reply_table(lua, k);
        break;
    default:
        sr__reply_nil(k);
    }
    lua_pop(lua, 1);
}

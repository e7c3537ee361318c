"""The Lua scripts of finding keys in Redis: each is one atomic change or read of one shard.

All keys of a shard lie in one hash slot, that of ``KEYS[1]``, its state. The names begin alike:

    mkf{7.41}:state        HASH    epoch, build, version, needed, entries
    mkf{7.41}<build><key>  STRING  the holders of a key, 8 bytes each, oldest first
    ... <build><key>c      STRING  likewise, those that clients stated, which come after the others

``<build>`` is four bytes and ``<key>`` eight; names are short, since they are most of the memory.
Holders are appended: a fingerprint that changed is a new holder, and who reads them knows from the
database which of them are of the present. Where those of the past take the places of others, they
are taken out.
"""

from __future__ import annotations

from app.infra.storage.redis_script import Script

__all__ = ["APPLY", "FORGET", "HOLDERS", "START", "STATES"]

# A value of another type is foreign: the state of the shard counts as unknown.
_COMMON = """
local state = {}
if redis.call('TYPE', KEYS[1]).ok == 'hash' then
  state = redis.call('HMGET', KEYS[1], 'epoch', 'build', 'version', 'needed', 'entries')
end
"""

STATES = Script(_COMMON + "return state")

# ARGV: epoch, build, needed. Begins the shard again, at version 0.
START = Script(
    """
redis.call('DEL', KEYS[1])
redis.call(
  'HSET', KEYS[1], 'epoch', ARGV[1], 'build', ARGV[2], 'version', 0, 'needed', ARGV[3],
  'entries', 0)
return 1
"""
)

# ARGV: epoch, build, since, until, needed, keys, holders, and the keys and holders that clients
# stated. All are of 8 bytes each, side by side.
APPLY = Script(
    _COMMON
    + """
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] or state[3] ~= ARGV[3] then return 0 end
local prefix = string.sub(KEYS[1], 1, -1 - #':state') .. ARGV[2]
local function append(keys, holders, suffix)
  local at = 1
  while at <= #keys do
    local key, last = string.sub(keys, at, at + 7), at + 8
    while string.sub(keys, last, last + 7) == key do last = last + 8 end
    redis.call('APPEND', prefix .. key .. suffix, string.sub(holders, at, last - 1))
    at = last
  end
end
append(ARGV[6], ARGV[7], '')
append(ARGV[8], ARGV[9], 'c')
redis.call('HSET', KEYS[1], 'version', ARGV[4], 'needed', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'entries', (#ARGV[6] + #ARGV[8]) / 8)
return 1
"""
)

# ARGV: epoch, build, bytes of the holders of a key that are read, keys, holders that are taken out.
FORGET = Script(
    _COMMON
    + """
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then return 0 end
local prefix = string.sub(KEYS[1], 1, -1 - #':state') .. ARGV[2]
local last, keys, past, taken = tonumber(ARGV[3]), ARGV[4], {}, 0
for at = 1, #ARGV[5], 8 do past[string.sub(ARGV[5], at, at + 7)] = true end
local function forget(name)
  local held, kept = redis.call('GETRANGE', name, 0, last - 1), {}
  for at = 1, #held, 8 do
    local each = string.sub(held, at, at + 7)
    if not past[each] then kept[#kept + 1] = each end
  end
  local gone = #held / 8 - #kept
  if gone > 0 then
    redis.call('SET', name, table.concat(kept) .. redis.call('GETRANGE', name, last, -1))
    taken = taken + gone
  end
end
for at = 1, #keys, 8 do
  local name = prefix .. string.sub(keys, at, at + 7)
  forget(name)
  forget(name .. 'c')
end
redis.call('HINCRBY', KEYS[1], 'entries', -taken)
return 1
"""
)

# ARGV: bytes of the holders of a key that are read, keys. Returns the state, and of each key its
# holders and how many bytes there are of them.
HOLDERS = Script(
    _COMMON
    + """
if not state[2] then return {state} end
local prefix = string.sub(KEYS[1], 1, -1 - #':state') .. state[2]
local found, keys, most = {state}, ARGV[2], tonumber(ARGV[1])
for at = 1, #keys, 8 do
  local name, more = prefix .. string.sub(keys, at, at + 7), 0
  local held = redis.call('GETRANGE', name, 0, most - 1)
  if #held < most then held = held .. redis.call('GETRANGE', name .. 'c', 0, most - #held - 1) end
  if #held == most then
    more = redis.call('STRLEN', name) + redis.call('STRLEN', name .. 'c') - most
  end
  found[#found + 1] = held
  found[#found + 1] = more
end
return found
"""
)

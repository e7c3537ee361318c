"""The Lua scripts that run in Redis: each is one atomic change or one consistent read.

All keys of a space lie in one hash slot, that of ``KEYS[1]``, the state. So the names built here
are on the same server. The names begin as the state's name does:

    modelkin:{42}:state         HASH   epoch, version, banding, build
    modelkin:{42}<build>m       HASH   model id -> the keys of its buckets, 8 bytes each
    modelkin:{42}<build><key>   SET    the ids in one bucket

``<build>`` is four bytes of the epoch and ``<key>`` eight, so no two of these names are equal. No
query reads a build that was dropped; ``SWEEP`` deletes it piece by piece.
"""

from __future__ import annotations

from app.infra.storage.redis_script import Script

__all__ = ["APPLY", "CANDIDATES", "DROP", "MEMBERS", "SIZES", "STATE", "SWEEP"]

# A value of another type is foreign: the state of the space counts as unknown.
_COMMON = """
local base = string.sub(KEYS[1], 1, -1 - #':state')
local state = {}
if redis.call('TYPE', KEYS[1]).ok == 'hash' then
  state = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'banding', 'build')
end
"""

STATE = Script(_COMMON + "return state")

# ARGV: build, epoch, since, until, banding, number of upserts; then id and keys of each, then the
# removed ids. A script that fails half-way has not moved the version and is repeated, perhaps with
# other keys. So the old keys of a model stay noted until it is in its new buckets.
APPLY = Script(
    _COMMON
    + """
local build, epoch, since, upto, banding = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local prefix = base .. build
if state[1] then
  if state[1] ~= epoch or state[2] ~= since or state[3] ~= banding then return 0 end
elseif since ~= '0' then
  return 0
end
local models = prefix .. 'm'
local function move(command, keys, id)
  for at = 1, #keys, 8 do
    redis.call(command, prefix .. string.sub(keys, at, at + 7), id)
  end
end
local last = 6 + 2 * tonumber(ARGV[6])
for at = 7, last, 2 do
  local id, keys = ARGV[at], ARGV[at + 1]
  local had = redis.call('HGET', models, id)
  if had ~= keys then
    redis.call('HSET', models, id, (had or '') .. keys)
    if had then move('SREM', had, id) end
    move('SADD', keys, id)
    redis.call('HSET', models, id, keys)
  end
end
for at = last + 1, #ARGV do
  local had = redis.call('HGET', models, ARGV[at])
  if had then
    move('SREM', had, ARGV[at])
    redis.call('HDEL', models, ARGV[at])
  end
end
redis.call('DEL', KEYS[1])
redis.call(
  'HSET', KEYS[1], 'epoch', epoch, 'version', upto, 'banding', banding, 'build', build)
return 1
"""
)

# ARGV: cap, limit, keys. Returns the state, the ids, and how many buckets were left out.
CANDIDATES = Script(
    _COMMON
    + """
if not state[4] then return {state, {}, 0} end
local prefix, cap, limit, keys = base .. state[4], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local buckets = {}
for at = 1, #keys, 8 do
  local name = prefix .. string.sub(keys, at, at + 7)
  local size = redis.call('SCARD', name)
  if size > 0 then buckets[#buckets + 1] = {size, at, name} end
end
table.sort(buckets, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
local chosen, entries = {}, 0
for at, bucket in ipairs(buckets) do
  entries = entries + bucket[1]
  if bucket[1] > cap or entries > limit then break end
  chosen[at] = bucket[3]
end
local ids = {}
if #chosen > 0 then ids = redis.call('SUNION', unpack(chosen)) end
return {state, ids, #buckets - #chosen}
"""
)

# ARGV: ids. Returns id and keys of each that is noted, without the keys of buckets that lack it.
MEMBERS = Script(
    _COMMON
    + """
if not state[4] then return {} end
local prefix, found = base .. state[4], {}
for _, id in ipairs(ARGV) do
  local keys = redis.call('HGET', prefix .. 'm', id)
  if keys then
    local held = {}
    for at = 1, #keys, 8 do
      local key = string.sub(keys, at, at + 7)
      if redis.call('SISMEMBER', prefix .. key, id) == 1 then held[#held + 1] = key end
    end
    found[#found + 1] = id
    found[#found + 1] = table.concat(held)
  end
end
return found
"""
)

SIZES = Script(
    _COMMON
    + """
if not state[4] then return {state, 0} end
return {state, redis.call('HLEN', base .. state[4] .. 'm')}
"""
)

DROP = Script("return redis.call('DEL', KEYS[1])")

# ARGV: build, epoch, models at most. Returns how many were freed, or -1 if the build is in use.
SWEEP = Script(
    _COMMON
    + """
if state[1] == ARGV[2] then return -1 end
local prefix, most, swept, cursor = base .. ARGV[1], tonumber(ARGV[3]), 0, '0'
repeat
  local page = redis.call('HSCAN', prefix .. 'm', cursor, 'COUNT', most - swept)
  cursor = page[1]
  for at = 1, #page[2], 2 do
    local keys = page[2][at + 1]
    for byte = 1, #keys, 8 do
      redis.call('DEL', prefix .. string.sub(keys, byte, byte + 7))
    end
    swept = swept + redis.call('HDEL', prefix .. 'm', page[2][at])
  end
until cursor == '0' or swept >= most
return swept
"""
)

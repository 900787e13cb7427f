"""The scripts of the Redis sink, which the server runs each as one step. What they are for is told at the head of redis.py."""

from __future__ import annotations

import re

from headrace.ums.system_columns import SystemColumns

_ABOVE = """
local function above(a, b)
  local minus_a, minus_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
  if minus_a ~= minus_b then return minus_b end
  if #a ~= #b then return (#a > #b) ~= minus_a end
  if minus_a then return a < b end
  return a > b
end
"""
_ROWS = (
    _ABOVE
    + """
local gone_for, is_hash = tonumber(ARGV[3]), ARGV[4] == 'hash'
local function id_of(key)
  local id
  if is_hash then id = redis.call('HGET', key, 'ID')
  else
    local text = redis.call('GET', key)
    id = text and text:match('^{"ID":"(%-?%d+)"')
  end
  if not id and gone_for > 0 then id = redis.call('GET', 'headrace:gone:' .. key) end
  return id
end
local function delete(key, id, ts)
  if gone_for > 0 then
    redis.call('DEL', key)
    redis.call('SET', 'headrace:gone:' .. key, id, 'PX', gone_for)
  elseif is_hash then redis.call('HSET', key, 'ID', id, 'TS', ts, 'ACTIVE', '0')
  else
    local text = redis.call('GET', key)
    local _, head = text:find('^{"ID":"%-?%d+","TS":"[^"]*","ACTIVE":%d')
    local new = '{"ID":"' .. id .. '","TS":"' .. ts .. '","ACTIVE":0'
    redis.call('SET', key, new .. text:sub(head + 1), 'KEEPTTL')
  end
end
"""
)
_WRITE = (
    _ROWS
    + """
local known = redis.call('HMGET', ARGV[1], 'number', 'cleared', 'changing')
if known[1] ~= ARGV[2] or known[3] == '1' then return -1 end
local expire, cleared, rows, written = tonumber(ARGV[5]), known[2], cmsgpack.unpack(ARGV[6]), 0
for at, key in ipairs(KEYS) do
  local row, old = rows[at], id_of(key)
  local id, ts, deletes, last = row[1], row[2], row[3] == 'd', #row
  if not (cleared and above(cleared, id)) and (not old or above(id, old)) then
    written = written + 1
    if deletes and (gone_for > 0 or redis.call('EXISTS', key) == 1) then delete(key, id, ts)
    else
      if is_hash then
        if old then redis.call('DEL', key) end
        for from = 4, last, 4000 do redis.call('HSET', key, unpack(row, from, math.min(from + 3999, last))) end
      else redis.call('SET', key, row[4]) end
      if gone_for > 0 then redis.call('DEL', 'headrace:gone:' .. key) end
      if expire > 0 then redis.call('PEXPIRE', key, expire) end
    end
  end
end
return written
"""
)
"""Writes rows that are newer than those there are; how many they were, -1 when the table has another shape by now. The rows come as one argument,
a MessagePack list of [id, time, "d" or "w", fields and values in turns or one text]: clients spend more on an argument for each value than on all
else (docs/decisions/0039-speed-of-sinks.md)."""
_CLEAR = (
    _ROWS
    + """
for _, key in ipairs(KEYS) do
  local old = id_of(key)
  if old and redis.call('EXISTS', key) == 1 and above(ARGV[1], old) then delete(key, ARGV[1], ARGV[2]) end
end
"""
)
"""Ends rows that are older than a clear."""
RAISE_CLEARED = (
    _ABOVE
    + """
local old = redis.call('HGET', KEYS[1], 'cleared')
if not old or above(ARGV[1], old) then redis.call('HSET', KEYS[1], 'cleared', ARGV[1]) end
"""
)
"""Remembers the newest clear of a table."""
BEGIN = """
local known = redis.call('HMGET', KEYS[1], 'number', 'changing')
if (known[1] or '0') ~= ARGV[1] or known[2] == '1' then return 0 end
redis.call('HSET', KEYS[1], 'number', tostring(tonumber(ARGV[1]) + 1), 'changing', '1', 'pending', ARGV[2])
return 1
"""
"""Says what rows of a table become, before the first one does; 0 when somebody else was quicker."""
RESHAPE = """
local known = redis.call('HMGET', ARGV[1], 'number', 'changing')
if known[1] ~= ARGV[2] or known[2] ~= '1' then return 0 end
if redis.call('SADD', ARGV[3], KEYS[1]) == 0 then return 1 end
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if ARGV[4] == 'hash' then
  local life = redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
  for from = 5, #ARGV, 4000 do redis.call('HSET', KEYS[1], unpack(ARGV, from, math.min(from + 3999, #ARGV))) end
  if life > 0 then redis.call('PEXPIRE', KEYS[1], life) end
else redis.call('SET', KEYS[1], ARGV[5], 'KEEPTTL') end
return 1
"""
"""Gives one row its new shape, once; 0 when the change has been ended."""
END = """
local known = redis.call('HMGET', KEYS[1], 'number', 'changing')
if known[1] ~= ARGV[1] or known[2] ~= '1' then return 0 end
redis.call('HSET', KEYS[1], 'number', tostring(tonumber(ARGV[1]) + 1), 'changing', '0', 'shape', ARGV[2])
redis.call('HDEL', KEYS[1], 'pending')
redis.call('UNLINK', ARGV[3])
return 1
"""
"""Ends a change of shape."""


class Scripts:
    """Those that know what the fields beside the columns are called: ID, TS and ACTIVE in them."""

    def __init__(self, names: SystemColumns) -> None:
        called = {"ID": names.id, "TS": names.ts, "ACTIVE": names.active}
        self.write, self.clear = (
            re.sub("(?<=['\"])(ID|TS|ACTIVE)(?=['\"])", lambda found: called[found[0]], script)
            for script in (_WRITE, _CLEAR)
        )

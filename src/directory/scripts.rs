//! The scripts that change the directory. Each script runs atomically and uses the directory's clock.

/// Beginning that all scripts have in common. Each change gets the next number. The number is also the id of the
/// change's entry in the stream of changes, so that readers notice if an entry is missing. A lease that ends later than
/// one and a half times its length from now is not valid: the clock was set back since, by more than the nodes ignore
/// ([`super::ClockWatch`]).
const PRELUDE: &str = r"
local SEQ, CHANGES, CLAIMS, LEASES, NODES, TOKEN = unpack(KEYS, 1, 6)
local WRITER = ARGV[1]
local function append(kind, a, b)
  local seq = redis.call('INCR', SEQ)
  redis.call('XADD', CHANGES, 'MAXLEN', '~', 20000, seq .. '-0', 'w', WRITER, 't', kind, 'a', a, 'b', b)
  return seq
end
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function valid(till, length)
  local left = tonumber(till) - now()
  return left > 0 and (length == '' or left <= tonumber(length) * 1.5)
end
local function alive(node, incarnation)
  local lease = redis.call('HGET', LEASES, node)
  if not lease then return false end
  local i, till, length = string.match(lease, '(%d+) (%d+) ?(%d*)')
  return i == incarnation and valid(till, length)
end
local function newest(node, incarnation)
  local lease = redis.call('HGET', LEASES, node)
  return lease and string.match(lease, '%d+') == incarnation
end
local function new_token(floor)
  if tonumber(redis.call('GET', TOKEN) or '0') < tonumber(floor) then redis.call('SET', TOKEN, floor) end
  return redis.call('INCR', TOKEN)
end
";

/// Changes records. Arguments: writer, operations. Returns the number of the change.
const COMMIT: &str = r"
local at, blob = 1, ARGV[2]
while at <= #blob do
  local table, put, k, v
  table, put, k, v, at = struct.unpack('>BBI4I4', blob, at)
  local key = string.sub(blob, at, at + k - 1)
  at = at + k
  if put == 1 then
    redis.call('HSET', KEYS[7 + table], key, string.sub(blob, at, at + v - 1))
  else
    redis.call('HDEL', KEYS[7 + table], key)
  end
  at = at + v
end
return append('r', blob, '')
";

/// Removes a record, if it exists. Arguments as for [`COMMIT`], with one operation. Returns the number of the change,
/// or 0 if there was no such record.
const BURN: &str = r"
local table, put, k, v, at = struct.unpack('>BBI4I4', ARGV[2], 1)
if redis.call('HDEL', KEYS[7 + table], string.sub(ARGV[2], at, at + k - 1)) == 0 then return 0 end
return append('r', ARGV[2], '')
";

/// Restores records that the directory has lost. Records that exist are not overwritten. Arguments as for [`COMMIT`],
/// without removals.
const REFILL: &str = r"
local at, blob, made = 1, ARGV[2], {}
while at <= #blob do
  local from = at
  local table, put, k, v
  table, put, k, v, at = struct.unpack('>BBI4I4', blob, at)
  local key = string.sub(blob, at, at + k - 1)
  at = at + k
  if redis.call('HSETNX', KEYS[7 + table], key, string.sub(blob, at, at + v - 1)) == 1 then
    made[#made + 1] = string.sub(blob, from, at + v - 1)
  end
  at = at + v
end
if #made == 0 then return 0 end
return append('r', table.concat(made), '')
";

/// Claims an id. Arguments: writer, id, node, incarnation, smallest allowed token, and 1 to respect claims of nodes
/// whose leases have expired. Returns a token, or 0 and the live node that has the id; then the number of the change.
const CLAIM: &str = r"
local field, node, incarnation = ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('HGET', CLAIMS, field)
if held then
  local t, i, n = string.match(held, '(%d+) (%d+) (.+)')
  if not (n == node and i == incarnation) and (alive(n, i) or (ARGV[6] == '1' and newest(n, i))) then return {0, n, 0} end
end
local token = new_token(ARGV[5])
local claim = token .. ' ' .. incarnation .. ' ' .. node
redis.call('HSET', CLAIMS, field, claim)
return {token, node, append('c', field, claim)}
";

/// Asserts a claim that was made before the directory went away. Arguments as for [`CLAIM`], then the token of the
/// claim, or 0 for a new token. If a node that is gone has claimed the id since, the claim gets a new token, because
/// that node must find a larger token when it returns. A process that is not the newest of its node keeps nothing.
const KEEP: &str = r"
local field, node, incarnation, token = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
if redis.call('HGET', LEASES, node) and not newest(node, incarnation) then return 0 end
local held = redis.call('HGET', CLAIMS, field)
if token == 0 then
  token = new_token(ARGV[5])
elseif held then
  local t, i, n = string.match(held, '(%d+) (%d+) (.+)')
  if n == node and i == incarnation then return 0 end
  if tonumber(t) > token then
    if alive(n, i) then return 0 end
    token = new_token(ARGV[5])
  end
end
local claim = token .. ' ' .. incarnation .. ' ' .. node
redis.call('HSET', CLAIMS, field, claim)
return append('c', field, claim)
";

/// Ends a claim. Arguments: writer, id, node, incarnation, and the token of the claim, or 0 for a claim of the node
/// with any token.
const RELEASE: &str = r"
local field = ARGV[2]
local held = redis.call('HGET', CLAIMS, field)
if not held then return 0 end
local t, i, n = string.match(held, '(%d+) (%d+) (.+)')
if t == ARGV[5] or (ARGV[5] == '0' and n == ARGV[3] and i == ARGV[4]) then
  redis.call('HDEL', CLAIMS, field)
  return append('c', field, '')
end
return 0
";

/// Gives an id to another live node. Arguments: writer, id, node, incarnation, smallest allowed token, and the token of
/// the current claim.
const HAND_OVER: &str = r"
local field, node, incarnation = ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('HGET', CLAIMS, field)
if not held or not (string.match(held, '%d+') == ARGV[6]) or not alive(node, incarnation) then return 0 end
local claim = new_token(ARGV[5]) .. ' ' .. incarnation .. ' ' .. node
redis.call('HSET', CLAIMS, field, claim)
return append('c', field, claim)
";

/// Sets the number of a subscriber's connections at a node. Arguments: writer, field, value, and 0 if there are no
/// connections, else 1.
const PRESENT: &str = r"
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[12], ARGV[2], ARGV[3])
else
  redis.call('HDEL', KEYS[12], ARGV[2])
end
return append('p', ARGV[2], ARGV[3])
";

/// Ends the claim of a node that is gone. Arguments: writer, id, token.
const BURY: &str = r"
local field = ARGV[2]
local held = redis.call('HGET', CLAIMS, field)
if not held then return 0 end
local t, i, n = string.match(held, '(%d+) (%d+) (.+)')
if not (t == ARGV[3]) or alive(n, i) then return 0 end
redis.call('HDEL', CLAIMS, field)
return append('c', field, '')
";

/// Renews a lease. Arguments: writer, node, incarnation, duration of the lease in milliseconds, profile. Returns
/// whether the process is the newest of its node, the directory's time, all leases, and all profiles.
const RENEW: &str = r"
local node, incarnation = ARGV[2], ARGV[3]
local lease = redis.call('HGET', LEASES, node)
local newer = lease and tonumber(string.match(lease, '%d+')) > tonumber(incarnation)
local time = now()
if not newer then
  redis.call('HSET', LEASES, node, incarnation .. ' ' .. string.format('%.0f', time + tonumber(ARGV[4])) .. ' ' .. ARGV[4])
  redis.call('HSET', NODES, node, ARGV[5])
end
return {newer and 0 or 1, string.format('%.0f', time), redis.call('HGETALL', LEASES), redis.call('HGETALL', NODES)}
";

/// Removes a node at its shutdown. Arguments: writer, node, incarnation.
const GOODBYE: &str = r"
local lease = redis.call('HGET', LEASES, ARGV[2])
if lease and string.match(lease, '%d+') == ARGV[3] then redis.call('HDEL', LEASES, ARGV[2]) end
return 0
";

/// Forgets a node that is not alive, and the connections of subscribers that it has reported. Arguments: writer, node.
const FORGET: &str = r"
local lease = redis.call('HGET', LEASES, ARGV[2])
if lease then
  local i, till, length = string.match(lease, '(%d+) (%d+) ?(%d*)')
  if valid(till, length) then return 0 end
end
redis.call('HDEL', LEASES, ARGV[2])
local ending = '\n' .. ARGV[2]
for _, field in ipairs(redis.call('HKEYS', KEYS[12])) do
  if string.sub(field, -#ending) == ending then redis.call('HDEL', KEYS[12], field) end
end
return redis.call('HDEL', NODES, ARGV[2])
";

/// A script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// See [`COMMIT`].
    Commit,
    /// See [`BURN`].
    Burn,
    /// See [`REFILL`].
    Refill,
    /// See [`CLAIM`].
    Claim,
    /// See [`KEEP`].
    Keep,
    /// See [`RELEASE`].
    Release,
    /// See [`HAND_OVER`].
    HandOver,
    /// See [`PRESENT`].
    Present,
    /// See [`BURY`].
    Bury,
    /// See [`RENEW`].
    Renew,
    /// See [`GOODBYE`].
    Goodbye,
    /// See [`FORGET`].
    Forget,
}

impl Script {
    /// Returns the text of the script.
    pub(super) fn text(self) -> String {
        let body = match self {
            Self::Commit => COMMIT,
            Self::Burn => BURN,
            Self::Refill => REFILL,
            Self::Claim => CLAIM,
            Self::Keep => KEEP,
            Self::Release => RELEASE,
            Self::HandOver => HAND_OVER,
            Self::Present => PRESENT,
            Self::Bury => BURY,
            Self::Renew => RENEW,
            Self::Goodbye => GOODBYE,
            Self::Forget => FORGET,
        };
        format!("{PRELUDE}{body}")
    }
}

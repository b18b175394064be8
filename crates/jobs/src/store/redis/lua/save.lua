-- Writes fields of a small hash, also on a full server: it is a note about jobs that are to be drained. key, ms to
-- live, field, value…
redis.call('HSET', ARGV[1], unpack(ARGV, 3))
redis.call('PEXPIRE', ARGV[1], ARGV[2])
return 1

-- Releases what removed jobs held. For each: lock key or '', jid, batch or '', jid.
for i = 1, #ARGV, 4 do
  if ARGV[i] ~= '' then unlock(ARGV[i], ARGV[i + 1]) end
  if ARGV[i + 2] ~= '' then update_batch(ARGV[i + 2], ARGV[i + 3], 'died') end
end
return #ARGV / 4

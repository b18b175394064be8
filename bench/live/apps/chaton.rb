# frozen_string_literal: true

workers Integer(ENV.fetch("BENCH_WORKERS"))
threads 5, 5
web { connections_max 20_000 }
live do
  store "sqlite://#{ENV.fetch("BENCH_STORE")}"
  ping_s Float(ENV.fetch("BENCH_PING_S"))
end

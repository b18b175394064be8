# frozen_string_literal: true

workers Integer(ENV.fetch("BENCH_WORKERS"))
threads 5, 5
web { connections_max 20_000 }
live { store "sqlite://#{ENV.fetch("BENCH_STORE")}" }

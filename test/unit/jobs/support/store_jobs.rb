# frozen_string_literal: true

require_relative "engine_case"

# The jobs of the tests on real stores; what they do is recorded.
module StoreJobs
  Seen = EngineCase::Recorder

  class Note
    include Chaton::Job
    def perform(*args) = Seen << args
  end

  class Broken < Note
    options retry: 1, backtrace: 1
    def perform(*) = raise("boom")
  end

  class Unique < Note
    options unique_for: 600
  end

  class Early < Note
    options unique_for: 600, unique_until: :start
    # The next one may run before the first has ended.
    def perform(*args)
      again = Early.perform_async(*args) if Seen.seen.empty?
      Seen << [again.class]
    end
  end

  class Narrow < Note
    options limit: { key: "narrow", concurrency: 1 }
    def perform(number)
      Seen << [:in, number]
      Thread.pass
      Seen << [:out, number]
    end
  end

  class Stale < Note
    options expires_in: 0.001
  end

  class Long < Note
    def perform
      Seen << [:began]
      sleep EngineCase::LOOK_S until cancelled?
      Seen << [:cancelled]
    end
  end

  class Short < Long
    options deadline: 0.05
  end

  class Steps
    include Chaton::IterableJob
    def build_enumerator(count, cursor:) = array_enumerator((1..count).to_a, cursor: cursor)

    def each_iteration(item, _count)
      Seen << [item]
      Chaton::Jobs.stopping = true if item == 3
    end

    def on_complete = Seen << [:complete]
  end

  class Callbacks
    def on_success(status, options) = Seen << [:success, status.total, status.pending, options]
    def on_complete(status, _) = Seen << [:complete, status.failures]
    def on_death(_, _) = Seen << [:death]
  end

  class Mark
    def call(_klass, item, _queue, _pool)
      item["args"] += ["marked"]
      yield
    end
  end
end

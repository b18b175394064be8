# frozen_string_literal: true

# What both sides of the comparison run: the Rails example, and jobs that Sidekiq and Chaton take from one Redis.
require "json"
require "sidekiq"

# Puma and Sidekiq boot at the same time, and the first of them makes the table.
File.open("schema.lock", "w") do |lock|
  lock.flock(File::LOCK_EX)
  require_relative "../../examples/rails/config/environment"
end

Redis.silence_deprecations = true if defined?(Redis)

# Works for a moment and notes its number. A job that is lost leaves no note.
class Note
  include Sidekiq::Job

  def perform(number)
    sleep 0.1
    File.write("notes", "#{number}\n", mode: "a")
  end
end

# Computes until it has had this much processor time.
class Compute
  include Sidekiq::Job

  def perform(seconds)
    clock = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
    ends = clock.call + seconds
    0.upto(1000) { |number| Math.sqrt(number) } while clock.call < ends
  end
end

# The versions in the table are those of what was loaded.
loaded = { "Ruby" => RUBY_VERSION, "Rails" => Rails.version, "Sidekiq" => Sidekiq::VERSION,
           "Puma" => defined?(Puma::Const) && Puma::Const::PUMA_VERSION }
File.write("versions.#{Process.pid}", JSON.generate(loaded.select { |_, version| version }))

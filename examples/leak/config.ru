# frozen_string_literal: true

# Renders a page for each request, and keeps a list of visits that only grows, which `chaton profile` finds.
class Shop
  # Size of a visit's note.
  NOTE_BYTES = 1_000

  def initialize
    @visits = {}
    @lock = Mutex.new
  end

  def call(env)
    number = remember(env["PATH_INFO"])
    [200, { "content-type" => "text/plain" }, [page(number)]]
  end

  private

  # The leak: keeps a note of each request, and never reads it again.
  def remember(path)
    @lock.synchronize do
      @visits[@visits.size] = path.ljust(NOTE_BYTES, ".")
      @visits.size
    end
  end

  # Allocates far more than the leak, but keeps none of it.
  def page(number)
    rows = Array.new(50) { |row| "row #{row} of visit #{number}: #{"-" * row}" }
    rows.join("\n")
  end
end

run Shop.new

# frozen_string_literal: true

# A page that is rendered anew for each request, and a list of visits that nobody ever shortens: what
# `chaton trace` finds.
class Shop
  # What one visit is remembered by.
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

  # The leak: a note for each request, none of which is ever looked at again.
  def remember(path)
    @lock.synchronize do
      @visits[@visits.size] = path.ljust(NOTE_BYTES, ".")
      @visits.size
    end
  end

  # Allocates far more, none of which stays.
  def page(number)
    rows = Array.new(50) { |row| "row #{row} of visit #{number}: #{"-" * row}" }
    rows.join("\n")
  end
end

run Shop.new

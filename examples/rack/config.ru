# frozen_string_literal: true

# The smallest application: an object with `call`.
class Greeting
  def call(env)
    name = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("name", "world")
    [200, { "content-type" => "text/plain" }, ["Hello #{name}, from thread #{Thread.current.name}\n"]]
  end
end

use Rack::Head
run Greeting.new

# frozen_string_literal: true

# The smallest application.
run ->(_env) { [200, { "content-type" => "text/plain" }, ["Hello, world!"]] }

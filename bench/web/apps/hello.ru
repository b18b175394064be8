# frozen_string_literal: true

# As little application as there can be.
run ->(_env) { [200, { "content-type" => "text/plain" }, ["Hello, world!"]] }

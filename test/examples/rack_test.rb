# frozen_string_literal: true

require_relative "example_test_case"

class RackExampleTest < ExampleTestCase
  def test_it_greets
    server = boot_example("rack")
    assert_match(/\AHello world, from thread /, get(server, "/").body)
    assert_match(/\AHello cat, /, get(server, "/?name=cat").body)
    assert_equal 0, server.stop
  end

  def test_head_has_the_headers_only
    server = boot_example("rack")
    response = request(server, Net::HTTP::Head.new("/"))
    assert_equal "200", response.code
    assert_nil response.body
  end
end

# frozen_string_literal: true

require_relative "example_test_case"

class SinatraExampleTest < ExampleTestCase
  def test_pages_forms_and_errors_work
    server = boot_example("sinatra")
    assert_equal "Hello from Sinatra\n", get(server, "/").body
    noted = post(server, "/notes", "text=milk")
    assert_equal ["201", "noted: milk\n"], [noted.code, noted.body]
    assert_equal({ "count" => 1 }, JSON.parse(get(server, "/notes").body))
    assert_equal "422", post(server, "/notes", "").code
    missing = get(server, "/nowhere")
    assert_equal ["404", "no such page\n"], [missing.code, missing.body]
    assert_equal 0, server.stop
  end

  def test_it_streams
    assert_equal "line 0\nline 1\nline 2\n", get(boot_example("sinatra"), "/stream").body
  end
end

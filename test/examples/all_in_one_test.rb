# frozen_string_literal: true

require_relative "example_test_case"

class AllInOneExampleTest < ExampleTestCase
  def test_every_path
    server = boot_example("all_in_one")
    page = get(server, "/")
    assert_equal "text/html; charset=utf-8", page["content-type"]
    assert_match(/Served by <span>[^<]*chaton/i, page.body)
    assert_equal "Hello, world!\n", get(server, "/hello").body
    assert_equal "slept 0.01 s\n", get(server, "/sleep?s=0.01").body
    assert_equal 100, get(server, "/stream").body.lines.size
    assert_equal "said", post(server, "/echo", "said").body
    assert_equal "404", get(server, "/nowhere").code
  end

  def test_facts_about_the_process
    server = boot_example("all_in_one")
    facts = JSON.parse(get(server, "/status.json").body)
    assert_equal server.pid, facts["pid"]
    assert_operator facts["memory_mb"], :>, 1
  end

  def test_it_runs_in_workers
    server = boot_example("all_in_one", config: "workers 2")
    assert_includes server.workers, JSON.parse(get(server, "/status.json").body)["pid"]
  end
end

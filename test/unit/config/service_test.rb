# frozen_string_literal: true

require_relative "config_case"

# `service` lines: commands beside the server.
class ServiceLineTest < ConfigCase
  LINES = <<~RUBY
    service "css", "bin/rails tailwindcss:watch", only: :development
    service "shell", "echo $HOME && sleep 1", except: %i[test production]
    service :worker, ["bin/work", "a b"]
  RUBY

  def test_services_of_the_environment
    assert_equal %w[css shell worker], plan(LINES, environment: "development").services.map(&:name)
    assert_equal %w[worker], plan(LINES, environment: "production").services.map(&:name)
    assert_equal %w[shell worker], plan(LINES, environment: "staging").services.map(&:name)
  end

  def test_commands_are_split_into_words_or_run_by_the_shell
    assert_equal [%w[bin/rails tailwindcss:watch], ["/bin/sh", "-c", "echo $HOME && sleep 1"], ["bin/work", "a b"]],
                 plan(LINES).services.map(&:command)
  end

  def test_mistakes
    {
      "service \"css\", \"run\", onyl: :test" => /service "css" has no onyl:; did you mean only:\?/,
      "service \"css\"" => /service "css" needs a command, as a String or an Array of them, not nil/,
      "service \"a b\", \"run\"" => /needs a name of letters/,
      "service" => /service needs a name/,
      "service \"css\", \"run\", 1" => /not 1 too/,
      "service \"css\", \"run\"\nservice :css, \"run\"" => /service "css" is defined twice/,
      "web { service \"css\", \"run\" }" => /service is not an option of web/
    }.each { |text, message| assert_match message, only_problem(text).to_s }
  end
end

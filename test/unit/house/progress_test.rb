# frozen_string_literal: true

require "test_helper"
require "open3"

# bin/support/progress behind a pipe.
class ProgressTest < Minitest::Test
  PROGRAM = File.expand_path("../../../bin/support/progress", __dir__)
  # No command of these tests takes so long, however busy the machine is.
  LONG_S = 60

  def test_cargo_and_apt_and_others_are_followed
    { 'printf "   Compiling a v1\n    Building [==>   ] 3/181: serde(build), ring\r"' =>
        "3 of 181 crates, now serde(build), ring",
      'echo "0 upgraded, 7 newly installed, 0 to remove"; echo "Get:1 http://deb/debian stable/main amd64 wrk"' =>
        "downloading 1 of 7: wrk",
      'echo "0 upgraded, 7 newly installed, 0 to remove"; echo "Unpacking a ..."; echo "Unpacking b (2) ..."' =>
        "unpacking 2 of 7: b",
      "echo something" => "something" }.each do |script, expected|
      out, = run_program("#{script}; sleep 1", every_s: 0.1)
      assert_match(/^working: 0:0\d, #{Regexp.escape(expected)}$/, out)
    end
  end

  def test_output_appears_when_the_command_fails
    out, err, status = run_program('echo "error: broken"; exit 3')
    assert_equal ["", 3], [out, status.exitstatus]
    assert_match(/\Aerror: broken\nworking: failed after 0:0\d\n\z/, err)
  end

  def test_a_short_success_is_silent
    assert_equal ["", ""], run_program("echo fine").first(2)
  end

  private

  def run_program(script, every_s: LONG_S)
    Open3.capture3({ "PROGRESS_EVERY_S" => every_s.to_s }, PROGRAM, "working", "sh", "-c", script)
  end
end

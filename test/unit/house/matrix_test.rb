# frozen_string_literal: true

require "test_helper"
require "open3"
require "timeout"
require "tmpdir"

# What bin/matrix says before it has a root directory. The commands that would change the machine are replaced.
class MatrixTest < Minitest::Test
  REPLACED = <<~BASH
    set -euo pipefail
    say() { echo "matrix: $*"; }
    fail() { say "$*" >&2; exit 1; }
    packages_system() { echo debian; }
    packages_install() { :; }
    id() { echo 0; }
    setpriv() { "${@:3}"; }
    unshare() { :; }
    . bin/support/matrix.sh
  BASH

  def setup = @root = Dir.mktmpdir("chaton-matrix")
  def teardown = FileUtils.remove_entry(@root)

  def test_a_machine_that_cannot_run_a_lane_gets_a_sentence
    { "packages_system() { echo fedora; }" => /does not run Debian/,
      "id() { echo 1000; }" => %r{only root .* sudo bin/matrix},
      "unshare() { return 1; }" => /refuses 'unshare/ }.each do |change, sentence|
      output, status = run_bash("#{change}; seconds=; matrix_check_machine")
      assert_equal [1, 1], [status, output.lines.size], output
      assert_match sentence, output
      output, status = run_bash("#{change}; seconds=900; matrix_check_machine; echo started")
      assert_equal 0, status
      assert_match(/\Amatrix: the lane is left out: .*\n\z/, output)
    end
  end

  def test_a_mirror_that_does_not_answer_gets_a_sentence_with_the_place_of_the_output
    output, status = run_bash("unshare() { echo gone; return 1; }; seconds=; matrix_make_root trixie #{@root}/trixie")
    assert_equal 1, status
    assert_match(%r{network is down or the mirror is behind\. The output is in #{@root}/trixie\.log\.}, output)
    assert_equal "gone\n", File.read("#{@root}/trixie.log")
  end

  def test_a_root_directory_that_is_complete_is_used_without_the_network
    FileUtils.mkdir_p("#{@root}/trixie")
    FileUtils.touch("#{@root}/trixie/.chaton-ready")
    script = <<~BASH
      unshare() { return 1; }
      matrix_missing() { :; }
      seconds=
      matrix_make_root trixie #{@root}/trixie; matrix_install_packages trixie #{@root}/trixie; echo used
    BASH
    assert_equal ["used\n", 0], run_bash(script)
  end

  def test_a_lane_starts_only_if_there_is_time_for_it
    assert_equal ["started\n", 0], run_bash("seconds=900; matrix_check_time #{@root}/trixie; echo started")
    output, status = run_bash("seconds=400; matrix_check_time #{@root}/trixie; echo started")
    assert_equal ["matrix: the lane is left out: it needs 900 s, and 400 s are left\n", 0], [output, status]
    FileUtils.mkdir_p("#{@root}/var/tmp/chaton-target/debug")
    FileUtils.touch("#{@root}/var/tmp/chaton-target/debug/libchaton_native.so")
    assert_equal ["started\n", 0], run_bash("seconds=400; matrix_check_time #{@root}; echo started")
  end

  def test_what_runs_in_a_lane_ends_with_bin_matrix
    File.write("#{@root}/unshare", "#!/bin/sh\necho $$ >#{@root}/new && mv #{@root}/new #{@root}/pid\nexec sleep 600\n")
    File.chmod(0o755, "#{@root}/unshare")
    bash = spawn({ "PATH" => "#{@root}:#{ENV.fetch("PATH")}" }, "bash", "-c",
                 ". bin/support/matrix.sh; matrix_alone true; echo")
    eventually { File.exist?("#{@root}/pid") }
    inside = File.read("#{@root}/pid").to_i
    Process.kill("TERM", bash)
    Process.wait(bash)
    eventually { over?(inside) }
  ensure
    Process.kill("KILL", inside) if inside && !over?(inside)
  end

  def test_unknown_lanes_and_parts_are_named_before_anything_is_installed
    output, status = run_bash("seconds=; matrix_check_words trixi unit; echo started")
    assert_equal ["matrix: there is no lane 'trixi'; did you mean 'trixie'?\n", 1], [output, status]
    output, = run_bash("seconds=; matrix_check_words trixie unit boundry; echo started")
    assert_match(/there is no part or file of the tests 'boundry'; did you mean 'boundary'\?/, output)
  end

  # The repositories stand here, as they do on their host.
  def test_what_debian_lacks_is_cloned_once_from_its_repository
    git = ->(*words) { assert system("git", "-C", "#{@root}/rails", *words, %i[out err] => File::NULL) }
    FileUtils.mkdir_p("#{@root}/rails")
    git.call("init")
    %w[v8.1.2 v8.1.10 v8.1.9.rc1 v8.0.9].each do |tag|
      git.call("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", tag)
      git.call("tag", tag)
    end
    settings = { "GIT_CONFIG_COUNT" => "1", "GIT_CONFIG_KEY_0" => "url.#{@root}/.insteadOf",
                 "GIT_CONFIG_VALUE_0" => "https://github.com/rails/", "CHATON_MATRIX_GEMS" => "#{@root}/gems" }
    FileUtils.mkdir_p("#{@root}/gems")
    script = ". bin/support/matrix_source.sh; . bin/support/matrix_rails.sh; matrix_rails_clone rails rails/rails " \
             "$(matrix_rails_ref 8.1) && git -C $CHATON_MATRIX_GEMS/rails log -1 --format=%s"
    assert_equal ["matrix: cloning rails/rails v8.1.10\nv8.1.10\n", 0], run_bash(script, settings)
    assert_equal ["v8.1.10\n", 0], run_bash(script, settings)
    output, status = run_bash("#{script}; matrix_rails_clone turbo rails/turbo v1", settings)
    assert_match(%r{^matrix: https://github\.com/rails/turbo could not be cloned: .+}, output)
    assert_equal 1, status
  end

  private

  # A process that nobody has waited for has no command line any more.
  def over?(pid)
    File.read("/proc/#{pid}/cmdline").empty?
  rescue Errno::ENOENT, Errno::ESRCH
    true
  end

  def eventually
    Timeout.timeout(30) { sleep 0.01 until yield }
  end

  def run_bash(script, env = {})
    output, status = Open3.capture2e(env, "bash", "-c", REPLACED + script)
    [output, status.exitstatus]
  end
end

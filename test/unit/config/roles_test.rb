# frozen_string_literal: true

require_relative "config_case"

class RolesTest < ConfigCase
  def test_roles_of_each_worker
    { ["workers 2", {}] => [[:web], [:web]],
      ["workers 2\njobs { }", {}] => [%i[web jobs]] * 2,
      ["workers web: 2, jobs: 1", {}] => [[:web], [:web], [:jobs]],
      ["workers jobs: 1, web: 1", {}] => [[:jobs], [:web]],
      ["workers web: 1, jobs: 1", { jobs: true }] => [[:jobs]],
      ["workers web: 1, jobs: 1", { jobs: false }] => [[:web]],
      ["workers 1", { jobs: true }] => [[:jobs]],
      ["workers 1", { jobs: true, web: true }] => [%i[web jobs]],
      ["workers 1\njobs { }", { web: true }] => [[:web]],
      ["workers 1\njobs { }", { web: false }] => [[:jobs]],
      ["workers 2\nstreams { topic 'a', A }", {}] => [%i[web streams]] * 2,
      ["workers 1\nstreams { topic 'a' }", {}] => [[:web]],
      ["workers web: 1, streams: 1\nstreams { topic 'a', A }", {}] => [[:web], [:streams]],
      ["workers 1\njobs { }\nstreams { topic 'a', A }", { streams: true }] => [[:streams]],
      ["workers 1\njobs { }\nstreams { topic 'a', A }", { streams: false }] => [%i[web jobs]] }
      .each do |(text, given), expected|
      assert_equal expected, plan(text, given).roles_by_worker, "#{text} #{given}"
    end
  end

  def test_one_process_has_all_roles
    assert_equal %i[web jobs], plan("jobs { }").roles
    assert_equal [:jobs], load({ jobs: true, config_file: "-" }).roles
    plan = plan("workers web: 0, jobs: 0\njobs { }")
    assert_equal [0, %i[web jobs]], [plan.workers, plan.roles]
  end

  def test_a_tree_of_jobs_listens_nowhere
    plan = plan("workers jobs: 2\nbind 'tcp://127.0.0.1:1'")
    assert_equal [[], true, false], [plan.binds, plan.role?(:jobs), plan.role?(:web)]
    assert_equal ["tcp://127.0.0.1:1"], plan("workers jobs: 2, web: 1\nbind 'tcp://127.0.0.1:1'").binds.map(&:to_s)
  end

  def test_a_worker_above_the_configured_number_has_the_first_one_s_roles
    plan = plan("workers web: 1, jobs: 1")
    assert_equal [[:web], [:jobs], [:web]], [0, 1, 2].map { |index| plan.roles_of(index) }
  end

  def test_threads_and_deadline_of_workers_that_run_nothing_but_jobs
    plan = plan("threads 1..4\njobs { threads 2..25; shutdown_timeout 60 }")
    own = plan.of_process([:jobs])
    assert_equal [2, 25, true, 60.0], [own.threads_min, own.threads_max, own.threads_max_given?, own.shutdown_timeout_s]
    assert_equal [4, 25.0], plan.of_process(%i[web jobs]).then { |both| [both.threads_max, both.shutdown_timeout_s] }
    assert_equal 4, plan("threads 1..4\njobs { shutdown_timeout 60 }").of_process([:jobs]).threads_max
    assert_equal 25.0, plan("jobs { threads 3 }").of_process([:jobs]).shutdown_timeout_s
  end

  def test_impossible_combinations_are_refused
    assert_match(/no role is left/, only_problem("", { web: false }).to_s)
    assert_match(/--jobs asks for jobs, and workers names none/, only_problem("workers web: 2", { jobs: true }).to_s)
    assert_match(/no topic has a consumer/, only_problem("workers web: 1, streams: 1").to_s)
    assert_match(/workers names none for streams/, plan("workers web: 2\nstreams { topic 'a', A }").notes.join)
    assert_match(/workers know no role :stream; there are web, jobs and/, only_problem("workers stream: 1").to_s)
    assert_match(/workers names none for jobs/, plan("workers web: 2\njobs { }").notes.join)
    assert_empty plan("workers web: 2\njobs { }", { web: true }).notes
  end
end

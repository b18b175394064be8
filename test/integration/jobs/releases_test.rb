# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Two releases of an application run side by side on one store, as in a rolling deploy and after one was taken back.
class JobsReleasesTest < Minitest::Test
  include JobsTest

  # A class that one release has and the other has not. It is not retried.
  ONLY = <<~RUBY
    class NAME
      include Chaton::Job
      options retry: false, tags: ["kept"]
      def perform(id) = Recorder.note(id)
    end
  RUBY
  OLD = NOTE + ONLY.sub("NAME", "Removed")
  NEW = NOTE + ONLY.sub("NAME", "Added")
  UNKNOWN = /WARN.*a job of a class that is not known here is put back/

  def time_limit_s = 90

  each_store def test_a_job_waits_for_the_release_that_has_its_class
    old = boot_jobs(OLD)
    new = prepare_jobs(NEW)
    new_console = console(new)
    new_console.run("Added.perform_async(1)")
    old.wait_line(/#{UNKNOWN}.*class=Added/)
    old.eventually("it waits") { documents(new_console, "scheduled").map { |item| item["class"] } == ["Added"] }
    item = documents(new_console, "scheduled").first
    assert_equal [false, ["kept"], ["unknown_since"]], [item["retry"], item["tags"], item["chaton"].keys]
    new.start.ready
    # While both run, either may claim it when it is due again.
    assert_equal 0, old.stop
    new.eventually("the new release ran it") { new.record.ids == ["1"] }

    old_console = console(old)
    old_console.run("Removed.perform_async(2)")
    new.wait_line(/#{UNKNOWN}.*class=Removed/)
    assert_equal 0, new.stop
    # The deploy is taken back.
    again = boot_jobs(OLD)
    again.eventually("the old release ran it") { again.record.ids == ["2"] }
    drained(again, old_console)
    assert_equal [0, 0], stats(old_console).values_at("failed", "dead")
    assert_equal 0, again.stop
  end

  each_store def test_a_document_of_a_later_version_waits_for_it
    server = boot_jobs(OLD)
    console = console(server)
    document = { "class" => "Note", "args" => [1], "jid" => "a", "queue" => "default", "later" => 1,
                 "chaton" => { "format" => 2, "limits" => "of another form" } }
    console.run("Chaton::Jobs.client.native.push(\"default\", #{JSON.generate(document).dump}, nil, nil, nil)")
    server.wait_line(/WARN.*Note jid=a has a document of a later version of Chaton \(format 2\)/)
    server.eventually("it waits") { documents(console, "scheduled").any? }
    item = documents(console, "scheduled").first
    since = item["chaton"].delete("unknown_since")
    assert_in_delta Time.now.to_f, since, WAIT_S
    assert_equal document, item
    console.run("Note.perform_async(2)")
    server.eventually("the others run") { server.record.ids == ["2"] }
    format, version, ours = console.run(<<~CODE)
      Chaton::Jobs::ProcessSet.new.first.details.values_at("format", "version") << Chaton::VERSION
    CODE
    assert_equal [1, ours], [format, version]
    assert_equal 0, server.stop
  end
end

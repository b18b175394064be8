# frozen_string_literal: true

# A text that comes word by word, and goes on while the server is deployed and its processes are killed.
class Answers
  PAGE = File.read(File.join(__dir__, "answer.html"))
  PATH = %r{\A/answers/([a-z0-9]{1,20})(/events)?\z}

  # GET /answer is the page, POST /answers/ID enqueues the job that says the text, and GET /answers/ID/events is the
  # stream of its words.
  #
  # @return [Array, nil] nil for another path
  def call(env)
    return [200, { "content-type" => "text/html; charset=utf-8" }, [PAGE]] if env["PATH_INFO"] == "/answer"

    id, events = PATH.match(env["PATH_INFO"])&.captures
    return unless id

    if events
      require "chaton"
      # From its first word on, also for a page that is loaded later.
      Chaton::EventStream.response(env, "answers/#{id}", history: true)
    elsif env["REQUEST_METHOD"] == "POST"
      require_relative "jobs/answer_job"
      AnswerJob.perform_async(id)
      [202, {}, []]
    end
  end
end

# frozen_string_literal: true

require "chaton"

# Says a text word by word, as a language model does. A page shows it as it comes.
class AnswerJob
  include Chaton::Job
  options queue: "default", retry: 5

  WORD_S = Float(ENV.fetch("ANSWER_WORD_S", "0.12"))
  TEXT = <<~TEXT.tr("\n", " ").strip
    A background job says this text, one word after the other, and this page shows each word as it comes. No thread of
    Ruby holds the connection between them. Now deploy: `chaton restart` replaces all processes by new ones, one after
    the other, and the text goes on. Kill the process that serves this page with `kill -9`: the browser comes back to
    another one within a second, says which word was its last, and gets what it has missed, without a word too many. Kill
    the process that runs the job: another one runs the job again, and this page begins anew by itself. Load the page
    again, and it has the whole text up to here. That is all there is to say; the last word comes now: done.
  TEXT

  def perform(id)
    Chaton::EventStream.open("answers/#{id}") do |stream|
      TEXT.split(/(?<= )/).each do |word|
        break if stream.superseded?

        stream << word
        sleep WORD_S
      end
    end
  end
end

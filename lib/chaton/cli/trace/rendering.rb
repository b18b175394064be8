# frozen_string_literal: true

require_relative "../../native"

module Chaton
  class CLI
    module Trace
      # Renders the profiles of several workers as one text.
      module Rendering
        private

        # @param answers [Array<Answer>]
        # @param by [Symbol, nil] nil: live objects
        # @return [String] bytes
        def render(answers, format, by)
          Native.render_profile(answers.map(&:body), format.to_s, (by || :live).to_s, title(answers))
        end

        def title(answers)
          "chaton, #{answers.map { |answer| "worker #{answer.worker} (pid #{answer.pid})" }.join(", ")}"
        end
      end
    end
  end
end

# frozen_string_literal: true

require_relative "problem"

# Evaluates the text of a configuration file. Its compact name keeps our own constants out of the file's reach:
# what the file calls `Plan` or `Rails` is found where any script finds it.
class Chaton::Config::Evaluation # rubocop:disable Style/ClassAndModuleChildren
  # @param dsl [Object] becomes self
  # @param path [String] for __FILE__ and backtraces
  # @raise [SyntaxError] and whatever the text raises
  def self.run(dsl, text, path)
    dsl.instance_eval(text, path, 1)
  end
end

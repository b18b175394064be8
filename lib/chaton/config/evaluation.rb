# frozen_string_literal: true

require_relative "problem"

# Evaluates the text of a configuration file. The compact definition keeps the constants of Chaton::Config out of the
# file's scope: `Plan` or `Rails` in the file is looked up as in any script.
class Chaton::Config::Evaluation # rubocop:disable Style/ClassAndModuleChildren
  # @param dsl [Object] becomes self
  # @param path [String] for __FILE__ and backtraces
  # @raise [SyntaxError] and what the text raises
  def self.run(dsl, text, path)
    dsl.instance_eval(text, path, 1)
  end
end

# frozen_string_literal: true

require "yard"

# Which parts of the Ruby API miss their documentation: every class and module has a sentence, and so has every public
# method that takes parameters. A method without parameters needs one only where its name does not say everything,
# which people decide. The method of an interface (`tick`, `show`, …) is documented once, where it is defined first.
class DocumentedApi
  # @param files [String] glob
  def initialize(files)
    YARD::Logger.instance.level = YARD::Logger::ERROR
    YARD::Registry.clear
    YARD.parse(files)
  end

  # @return [Array<String>] a line for each object without documentation
  def missing
    (namespaces + methods).map { |object|
      "#{object.file}:#{object.line}: #{object.path} is not documented"
    }
  end

  private

  def namespaces = YARD::Registry.all(:class, :module).select { |object| object.docstring.blank? && !private?(object) }

  def methods
    all = YARD::Registry.all(:method).select { |object| object.visibility == :public && !object.is_alias? }
    documented, rest = all.partition { |object| !object.docstring.blank?(false) }
    interfaces = documented.map(&:name).uniq
    rest.reject { |object| object.parameters.empty? || interfaces.include?(object.name) || private?(object) }
  end

  def private?(object)
    [object, object.namespace].any? { |found|
      found.respond_to?(:has_tag?) && found.has_tag?(:private)
    }
  end
end

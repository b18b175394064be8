# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"
require "rbs"
require "chaton"
require "chaton/cli"
require "chaton/control"
require "chaton/job"
require "chaton/jobs/handler"
require "chaton/logger"
require "chaton/native"
require "chaton/rack_handler"
require "chaton/streams/native_methods"
require "chaton/testing"
require "chaton/web/request"
require "chaton/web/stream"
require "chaton/web/streamed_body"

# The signatures in sig/ against what is defined at run time: a method or an error that comes or goes without its
# signature fails here, with its name.
class SigTest < Minitest::Test
  SIG = File.expand_path("../../sig", __dir__)
  # Files with what the extension defines.
  BOUNDARY = %w[native.rbs memory.rbs streams.rbs].freeze
  # Files with what applications use.
  PUBLIC = %w[chaton.rbs jobs.rbs consumer.rbs].freeze
  # Files whose classes have all of their public methods there. Those of chaton.rbs have more than is promised.
  WHOLE = %w[jobs.rbs consumer.rbs].freeze
  # Ruby's libraries whose types are named.
  LIBRARIES = %w[socket monitor logger].freeze
  # Inside of the library, they end as another error.
  INNER_ERRORS = %w[Chaton::Config:: Chaton::Memory:: Chaton::Native:: Chaton::Worker::].freeze
  # Ruby calls them.
  HOOKS = %i[included extended prepended append_features inherited].freeze

  def test_all_signatures_are_valid
    libraries = LIBRARIES.flat_map { |name| ["-r", name] }
    script = "RBS::CLI.new(stdout: $stdout, stderr: $stderr).run(#{[*libraries, "-I", SIG, "validate"].inspect})"
    output, status = Open3.capture2e(RbConfig.ruby, "-W0", "-rrbs", "-rrbs/cli", "-e", script)
    assert_predicate status, :success?, output.lines.grep_v(/\AValidating /).first(5).join
  end

  def test_every_native_method_has_a_signature
    assert_empty defined_in(Chaton::Native) - boundary, "defined, but not in #{BOUNDARY.join(", ")}"
  end

  def test_every_signature_of_the_boundary_is_defined
    assert_empty boundary - defined_in(Chaton::Native), "in #{BOUNDARY.join(", ")}, but not defined"
  end

  def test_every_public_signature_is_defined
    PUBLIC.each { |file| assert_empty missing_of(file), "in sig/#{file}, but not defined" }
  end

  def test_every_public_method_has_a_signature
    written = PUBLIC.flat_map { |file| entries(file) }
    modules = WHOLE.flat_map { |file| entries(file) }.grep_v(/[.#]/).map { |name| Object.const_get(name) } - [Chaton]
    public_methods = modules.flat_map { |space| public_entries(space) }
    assert_operator public_methods.size, :>, 150
    assert_empty public_methods - written, "public (no @private in its comment), but not in sig/#{WHOLE.join(", sig/")}"
  end

  def test_every_error_has_a_signature
    errors = ObjectSpace.each_object(Class).select { |one| one <= Chaton::Error || one <= Chaton::Shutdown }
    names = errors.filter_map(&:name).select { |name| name.start_with?("Chaton::") && Object.const_defined?(name) }
    assert_operator names.size, :>, 25
    assert_empty names.reject { |name| name.start_with?(*INNER_ERRORS) } - PUBLIC.flat_map { |file| entries(file) }
  end

  private

  def boundary = BOUNDARY.flat_map { |file| entries(file) } - ["Chaton"]

  def missing_of(file)
    entries(file).reject do |entry|
      owner, dot, name = entry.partition(/[.#](?=[^.#]+\z)/)
      next Object.const_defined?(entry) if dot.empty?

      constant = Object.const_get(owner)
      next constant.respond_to?(name) if dot == "."

      constant.public_method_defined?(name) || constant.private_method_defined?(name)
    end
  end

  # @return [Array<String>] "A::B", "A::B.singleton_method", "A::B#method" of a module and all below it
  def defined_in(space)
    inner = space.constants.map { |name| space.const_get(name) }.grep(Module)
    [space.name, *space.singleton_methods(false).map { |name| "#{space.name}.#{name}" },
     *space.public_instance_methods(false).map { |name| "#{space.name}##{name}" },
     *inner.flat_map { |one| defined_in(one) }]
  end

  # The same of one module, without its methods that say @private, and those that Ruby or a Struct makes.
  def public_entries(space)
    own = space.singleton_methods(false) - HOOKS
    [*own.reject { |name| private?(space.method(name)) }.map { |name| "#{space.name}.#{name}" },
     *space.public_instance_methods(false).reject { |name| private?(space.instance_method(name)) }
       .map { |name| "#{space.name}##{name}" }]
  end

  def private?(method)
    file, line = method.source_location
    return true unless file&.include?("/lib/chaton/")

    comment = File.readlines(file).first(line - 1).reverse.take_while { |one| one.match?(/^\s*#/) }
    comment.any? { |one| one.include?("@private") }
  end

  # The names that a signature file writes, as {#defined_in} does.
  def entries(file)
    parsed = RBS::Parser.parse_signature(File.read(File.join(SIG, file)))
    # Version 3 of rbs returns more than the declarations.
    declarations_of(parsed.last.is_a?(Array) ? parsed.last : parsed, [])
  end

  def declarations_of(list, outer)
    list.flat_map do |one|
      next [] unless one.respond_to?(:members)

      names = [*outer, one.name.name]
      own = one.members.flat_map { |member| names_of(member) }.map { |name| "#{names.join("::")}#{name}" }
      [names.join("::"), *own, *declarations_of(one.members.grep(RBS::AST::Declarations::Base), names)]
    end
  end

  # @return [Array<String>] ".method" or "#method", two of an accessor
  def names_of(member)
    names = case member
            when RBS::AST::Members::MethodDefinition, RBS::AST::Members::AttrReader then [member.name]
            when RBS::AST::Members::Alias then [member.new_name]
            when RBS::AST::Members::AttrWriter then ["#{member.name}="]
            when RBS::AST::Members::AttrAccessor then [member.name, "#{member.name}="]
            else []
            end
    names.map { |name| "#{member.kind == :singleton ? "." : "#"}#{name}" }
  end
end

# frozen_string_literal: true

require "test_helper"
require "chaton"
require "chaton/cli"
require "chaton/control"
require "chaton/job"
require "chaton/native"
require "chaton/rack_handler"
require "chaton/web/request"
require "chaton/web/stream"
require "chaton/web/streamed_body"

# The signatures in sig/ against what is defined at run time: a native method that comes or goes without its
# signature fails here, with its name.
class SigTest < Minitest::Test
  SIG = File.expand_path("../../sig", __dir__)
  # Files with what the extension defines.
  BOUNDARY = %w[native.rbs memory.rbs streams.rbs].freeze
  OPENING = /\A(?:module|class|interface) (?<name>[A-Z]\w*)/
  METHOD = /\Adef (?<owner>self\.)?(?<name>[^\s:]+):/

  def test_every_native_method_has_a_signature
    assert_empty defined_in(Chaton::Native) - boundary, "defined, but not in #{BOUNDARY.join(", ")}"
  end

  def test_every_signature_of_the_boundary_is_defined
    assert_empty boundary - defined_in(Chaton::Native), "in #{BOUNDARY.join(", ")}, but not defined"
  end

  def test_every_public_signature_is_defined
    %w[chaton.rbs jobs.rbs consumer.rbs].each do |file|
      assert_empty missing_of(file), "in sig/#{file}, but not defined"
    end
  end

  private

  def boundary = BOUNDARY.flat_map { |file| written(file) }

  def missing_of(file)
    written(file).reject do |entry|
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

  # The same names, as a signature file writes them. Its layout is plain: one `def` a line, each `end` alone.
  def written(file)
    spaces = []
    entries = File.foreach(File.join(SIG, file), chomp: true).map(&:strip).filter_map do |line|
      if (opening = OPENING.match(line))
        spaces.push(opening[:name]).join("::")
      elsif (method = METHOD.match(line))
        "#{spaces.join("::")}#{method[:owner] ? "." : "#"}#{method[:name]}"
      elsif line == "end"
        spaces.pop && nil
      end
    end
    assert_empty spaces, "#{file}: a module or class is not ended"
    BOUNDARY.include?(file) ? entries - ["Chaton"] : entries
  end
end

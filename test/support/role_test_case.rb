# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "console"
require_relative "server"

# Common parts of the tests of jobs and streams.
module RoleTest
  include ServerTest

  # Long enough for a machine that builds and tests at the same time.
  WAIT_S = 30

  # For test classes: replaces a test by one test for each kind of store or log.
  module EachKind
    private

    # @param name [Symbol] the method's name, which `def` returns
    def each_kind(kinds, name)
      body = instance_method(name)
      remove_method(name)
      kinds.each do |kind|
        define_method("#{name}_on_#{kind}") do
          @kind = kind
          body.bind_call(self)
        end
      end
    end
  end

  attr_reader :kind

  # @return [String] this test's directory for stores and logs
  def scratch = @scratch ||= Dir.mktmpdir("chaton-role")

  # @return [Console] in a server's directory
  def console(server, **options)
    made = Console.new(server.dir, **options)
    (@consoles ||= []) << made
    made
  end

  def teardown
    (@consoles || []).each(&:close)
    super
    (@stores || []).reverse_each(&:close)
    FileUtils.remove_entry(@scratch) if @scratch
  end
end

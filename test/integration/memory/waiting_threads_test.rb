# frozen_string_literal: true

require "test_helper"
require "support/server"

# A thread that waits for work keeps nothing of its last unit alive on its stack, whose words Ruby's collector takes for
# references.
class WaitingThreadsTest < Minitest::Test
  include ServerTest

  THREADS = 8
  # Each thread has one request, which calls a method in C with its document from a method in Ruby.
  APP = <<~RUBY
    require "json"
    class Document < Hash; end

    class Application
      def call(env)
        return [200, {}, [count]] if env["PATH_INFO"] == "/count"

        sleep 0.2
        result = { "documents" => [Document.new.merge!("id" => 1)] }
        [200, {}, [JSON.generate(result)]]
      end

      def count
        GC.start
        ObjectSpace.each_object(Document).count.to_s
      end
    end
    run Application.new
  RUBY

  def test_no_document_is_kept_by_a_thread_that_waits
    server = boot(rackup: APP, config: "workers 0\nthreads #{THREADS}..#{THREADS}")
    clients = Array.new(THREADS) do
      Thread.new { HttpClient.open(server.port) { |client| 3.times { client.get("/") } } }
    end
    clients.each(&:join)
    # The thread that counts may hold one.
    assert_operator server.get("/count").body.to_i, :<=, 1
    assert_equal 0, server.stop
  end
end

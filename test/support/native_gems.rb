# frozen_string_literal: true

require "nokogiri"
require "pg"
require "sqlite3"

# Calls of gems whose extensions hold Ruby objects: objects of the boot, which a later compaction may move, and new
# objects for each call. The result depends on the number alone.
module NativeGems
  NAMES = %w[nokogiri pg sqlite3].freeze
  COUNT = 300

  # @param name [String] one of {NAMES}, or "callbacks"
  # @return [String]
  def self.answer(name, number) = const_get(name.capitalize).answer(number)

  module Nokogiri
    ITEMS = Array.new(COUNT) { |number| "<item id='i#{number}'><name>item #{number}</name></item>" }.join
    CATALOGUE = ::Nokogiri::XML("<shop>#{ITEMS}</shop>")
    FOUND = CATALOGUE.xpath("//item").to_a

    # A function for XPath; newer versions want the prefix, older ones do not know it.
    PREFIX = Gem::Version.new(::Nokogiri::VERSION) < Gem::Version.new("1.15") ? "" : "nokogiri:"
    class Shout
      def shout(nodes) = nodes.map { |node| node.text.upcase }.join
    end

    class Names < ::Nokogiri::XML::SAX::Document
      def names = @names ||= []
      def start_element(name, _attributes) = names << name
    end

    def self.answer(number)
      list = ::Nokogiri::HTML("<ul>#{Array.new(50) { |at| "<li class='c#{at % 3}'>#{number}.#{at}</li>" }.join}</ul>")
      shouted = CATALOGUE.xpath("#{PREFIX}shout(//item[@id='i#{number}']/name)", Shout.new)
      names = Names.new.tap { |seen| ::Nokogiri::XML::SAX::Parser.new(seen).parse("<a><b/><c/></a>") }.names
      [list.css("li.c1").map(&:text), shouted, FOUND[number].at("name").text, FOUND[number]["id"], names].inspect
    end
  end

  # Encoders and decoders, which need no server.
  module Pg
    ENCODER = PG::TextEncoder::CopyRow.new(type_map: PG::TypeMapByClass.new.tap do |map|
      map[Integer] = PG::TextEncoder::Integer.new
      map[Array] = PG::TextEncoder::Array.new(elements_type: PG::TextEncoder::Integer.new)
    end)
    DECODER = PG::TextDecoder::Array.new(elements_type: PG::TextDecoder::Integer.new)
    REGISTRY = PG::BasicTypeRegistry.new.register_default_types

    def self.answer(number)
      binary = PG::Connection.unescape_bytea(PG::Connection.escape_bytea("\x00#{number}"))
      [ENCODER.encode([number, [number, number + 1], "text", nil]), DECODER.decode("{#{number},2,3}"), binary,
       PG::Connection.escape_string("it's #{number}"), PG::Connection.quote_ident("a #{number}"),
       PG::TextDecoder::TimestampUtc.new.decode("2025-11-21 10:00:#{number % 60}"),
       REGISTRY.coders_for(0, :encoder).fetch("int4").class].inspect
    end
  end

  # An object that is made at boot. Newer versions of sqlite3 refuse a database that was opened before a fork, so with
  # them it is made again in each process.
  class OfProcess
    def initialize(&make)
      @make = make
      @pid = Process.pid
      @object = make.call
    end

    def get
      if defined?(SQLite3::ForkSafety) && @pid != Process.pid
        @pid = Process.pid
        @object = @make.call
      end
      @object
    end
  end

  module Sqlite3
    PICK = OfProcess.new do
      database = SQLite3::Database.new(":memory:")
      database.execute("CREATE TABLE items (id INTEGER, name TEXT)")
      database.prepare("INSERT INTO items VALUES (?, ?)") do |insert|
        COUNT.times { |number| insert.execute(number, "item #{number}") }
      end
      database.prepare("SELECT name FROM items WHERE id = ?")
    end

    def self.answer(number)
      SQLite3::Database.new(":memory:", results_as_hash: true) do |other|
        other.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (#{number}); INSERT INTO t VALUES (2)")
        sum = other.execute("SELECT sum(a) AS total, count(*) AS many FROM t").first
        rows = other.prepare("SELECT a FROM t WHERE a = :a") { |made| made.execute("a" => number).to_a }
        return [PICK.get.execute(number).to_a, sum.values_at("total", "many"), rows].inspect
      end
    end
  end

  # Blocks and objects that SQLite refers to by their address.
  module Callbacks
    class Total
      def step(value) = @sum = (@sum || 0) + value
      def finalize = @sum
    end

    class Backwards
      def compare(left, right) = right <=> left
    end

    DATABASE = OfProcess.new do
      database = SQLite3::Database.new(":memory:")
      database.create_function("twice", 1) { |call, value| call.result = value.to_i * 2 }
      database.define_aggregator("total_of", Total.new)
      database.collation("backwards", Backwards.new)
      database.busy_handler { |tries| tries < 3 }
      database.execute("CREATE TABLE items (id INTEGER, name TEXT)")
      COUNT.times { |number| database.execute("INSERT INTO items VALUES (?, ?)", [number, "item #{number}"]) }
      database
    end

    def self.answer(number)
      ["SELECT twice(id) FROM items WHERE id = ?", "SELECT total_of(id) FROM items WHERE id <= ?",
       "SELECT name FROM items WHERE id < 9 ORDER BY id < ?, name COLLATE backwards"].map do |query|
        DATABASE.get.execute(query, [number])
      end.inspect
    end
  end
end

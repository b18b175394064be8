# frozen_string_literal: true

require "chaton"
require "json"

# Writes a record for each visit, and shows the consumer's counts.
class Visits
  JSON_TYPE = { "content-type" => "application/json" }.freeze
  FOLDER = File.expand_path("../storage/counts", __dir__)

  def call(env)
    case [env["REQUEST_METHOD"], env["PATH_INFO"]]
    in ["POST", %r{\A/visits/[\w-]+\z} => path] then visit(File.basename(path))
    in ["GET", "/counts"] then json(200, counts)
    else [404, { "content-type" => "text/plain" }, ["no such page\n"]]
    end
  end

  private

  # The page's name is the key, so all its visits are in one partition and are counted in order. `produce` does not wait
  # for the disk; `produce!` does.
  def visit(page)
    Chaton.produce("visits", { page: page, at: Time.now.to_f }, key: page)
    json(202, { page: page })
  end

  def counts
    Dir["#{FOLDER}/*.json"].map { |file| JSON.parse(File.read(file)).fetch("pages") }.reduce({}, :merge)
  end

  def json(status, data) = [status, JSON_TYPE.dup, ["#{JSON.generate(data)}\n"]]
end

# frozen_string_literal: true

require "digest"

# The text of THIRD_PARTY_LICENSES: what is linked into a platform gem, with its licences. Equal texts stand there once.
class ThirdPartyLicenses
  FILES = "{LICENSE,LICENCE,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*"
  # Libraries in C that are in a package, and have a licence of their own.
  BUNDLED = {
    "libz-sys" => "src/zlib/LICENSE", "openssl-src" => "openssl/LICENSE.txt", "zstd-sys" => "zstd/LICENSE",
    "rdkafka-sys" => "librdkafka/LICENSES.txt", "tikv-jemalloc-sys" => "jemalloc/COPYING"
  }.freeze
  # They build libraries in C that are linked, and are not linked themselves.
  BUILDERS = %w[openssl-src].freeze
  HEAD = <<~TEXT
    Licences of what is linked into the shared objects of this gem
    ==============================================================

    Chaton's own licence is in the file LICENSE. The shared objects contain parts of the packages and libraries below; of
    Rust's standard library (copyright its contributors, MIT or Apache-2.0, whose texts are below); of SQLite, which is in
    the public domain; and of the GNU C library what is linked into every program (with its exception for that).

  TEXT
  private_constant :HEAD

  # @param metadata [Hash] from `cargo metadata` for the target
  # @param roots [Array<String>] names of the packages that are built
  # @param others [Hash{String=>String}] further texts by the name of what they are for
  def initialize(metadata, roots:, others: {})
    @packages = metadata["packages"].to_h { |package| [package["id"], package] }
    @nodes = metadata["resolve"]["nodes"].to_h { |node| [node["id"], node] }
    @roots = @packages.each_value.select { |package| roots.include?(package["name"]) }.map { |package| package["id"] }
    @others = others
  end

  # @return [String]
  def to_s
    listed = linked.map { |package| "#{title(package)}: #{package["license"]}" }
    texts = by_text.map { |text, names| "#{rule}\n#{names.uniq.sort.join("\n")}\n#{rule}\n\n#{text}\n" }
    "#{HEAD}#{listed.join("\n")}\n\n#{texts.join("\n")}"
  end

  # @return [Array<Hash>] the packages of others, in the order of their names
  def linked
    found = {}
    waiting = @roots.dup
    while (id = waiting.pop)
      next if found[id]
      found[id] = @packages.fetch(id)
      waiting.concat(dependencies(id))
    end
    found.values.select { |package| package["source"] }.sort_by { |package| package["name"] }
  end

  private

  def dependencies(id)
    @nodes.fetch(id)["deps"].filter_map do |dependency|
      package = @packages.fetch(dependency["pkg"])
      next if package["targets"].all? { |target| target["kind"].include?("proc-macro") }
      linked = dependency["dep_kinds"].any? { |kind| kind["kind"].nil? } || BUILDERS.include?(package["name"])
      dependency["pkg"] if linked
    end
  end

  def by_text
    texts = linked.flat_map { |package| files(package).map { |file| [read(file), title(package)] } }
    texts += @others.map { |name, text| [text, name] }
    texts.group_by { |text, _| Digest::SHA256.digest(text.gsub(/\s+/, " ").strip) }
      .map { |_, same| [same.first.first.strip, same.map(&:last)] }.sort_by { |_, names| names.min }
  end

  def files(package)
    folder = File.dirname(package["manifest_path"])
    of_package = Dir.glob(FILES, File::FNM_CASEFOLD, base: folder).sort
    [*of_package, *BUNDLED[package["name"]]].map { |name| File.join(folder, name) }.select { |path| File.file?(path) }
  end

  def read(file) = File.read(file, encoding: "UTF-8").scrub

  def title(package) = "#{package["name"]} #{package["version"]}"

  def rule = "-" * 80
end

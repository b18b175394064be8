# frozen_string_literal: true

# Rails' tests of `bin/rails server` with an application that has Chaton, which prints other lines than Puma.
path = File.expand_path("server_test.rb", __dir__)
text = File.read(path)
{ '"Listening"' => '" ready  listen="', '"Restarting"' => '"a file was touched"',
  "build_app\n" => "build_app\n      add_chaton\n",
  "private\n" => <<~RUBY }.each do |theirs, ours|
    private
      def add_chaton
        path = "\#{app_path}/config/application.rb"
        File.write(path, File.read(path).sub("importmap-rails)", "importmap-rails chaton)"))
      end
  RUBY
  text.include?(theirs) or raise "#{path} has no #{theirs} any more"
  text.gsub!(theirs, ours)
end
eval(text, TOPLEVEL_BINDING, path) # rubocop:disable Security/Eval, -- it is a test of Rails

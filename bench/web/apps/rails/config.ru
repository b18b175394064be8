# frozen_string_literal: true

require "rails"
require "action_controller/railtie"
require "action_view/railtie"
require "active_record/railtie"
require "tmpdir"

# The index, show and create of a Rails scaffold on SQLite, in production mode, with the settings that the installed
# Rails generates (6.1 and 7.2). There are two differences: `create` takes requests without a CSRF token, because the
# load generator has no session, and there is no `force_ssl`. The database and the log are files of this process.
FOLDER = Dir.mktmpdir("chaton-bench-rails")
OWNER = Process.pid
at_exit { FileUtils.rm_rf(FOLDER) if Process.pid == OWNER }
# As in the generated config/database.yml.
ENV["DATABASE_URL"] = "sqlite3:#{FOLDER}/production.sqlite3?pool=5&timeout=5000"

# The application.
class Blog < Rails::Application
  config.load_defaults Rails::VERSION::STRING.to_f
  config.root = __dir__
  config.cache_classes = true
  config.eager_load = true
  config.consider_all_requests_local = false
  config.action_controller.perform_caching = true
  config.public_file_server.enabled = false
  config.active_support.deprecation = :silence
  config.secret_key_base = SecureRandom.hex(64)
  config.log_level = :info
  config.log_tags = [:request_id]
  config.logger = ActiveSupport::TaggedLogging.new(
    ActiveSupport::Logger.new("#{FOLDER}/production.log", formatter: Logger::Formatter.new)
  )
end
Rails.application.initialize!

ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table(:posts) do |t|
    t.string :title, null: false
    t.text :body
    t.timestamps
  end
end

class Post < ActiveRecord::Base
  validates :title, presence: true, length: { maximum: 200 }
end

class ApplicationController < ActionController::Base
end

# The actions that are measured; the views also link to the others.
class PostsController < ApplicationController
  skip_forgery_protection only: :create

  def index
    @posts = Post.order(id: :desc).limit(50)
  end

  def show
    @post = Post.find(params[:id])
  end

  def create
    @post = Post.new(params.require(:post).permit(:title, :body))
    if @post.save
      redirect_to @post, notice: "Post was successfully created."
    else
      head :unprocessable_entity
    end
  end
end

Rails.application.routes.draw do
  root "posts#index"
  get "/hello", to: ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] }
  resources :posts
end

50.times { |number| Post.create!(title: "Post #{number}", body: "A <b>post</b> & its text. " * 10) }

run Rails.application
